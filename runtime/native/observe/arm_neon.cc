// NEON of the aarch64 baseline: 4 floats at a time.
#include <arm_neon.h>

#include "../unrolled.h"
#include "observe.h"

namespace lucid_fx::observe {
namespace {

#include "gram.inc"

constexpr size_t kLanes = 4;

// minnm and maxnm return the number when one operand is NaN: a NaN never enters the accumulator,
// and only has to be noticed.
struct Range {
  float32x4_t min, max;
  void add(float32x4_t v) {
    min = vminnmq_f32(min, v);
    max = vmaxnmq_f32(max, v);
  }
};

// All ones where both operands are equal to themselves, hence numbers.
inline uint32x4_t numbers(float32x4_t a, float32x4_t b) {
  return vandq_u32(vceqq_f32(a, a), vceqq_f32(b, b));
}

// Up to four elements; the lanes past the end repeat the first.
inline float32x4_t load_some(const float* x, size_t n) {
  float32x4_t v = vdupq_n_f32(x[0]);
  if (n > 1) v = vsetq_lane_f32(x[1], v, 1);
  if (n > 2) v = vsetq_lane_f32(x[2], v, 2);
  if (n > 3) v = vsetq_lane_f32(x[3], v, 3);
  return v;
}

// The float64 quotients of two values, truncated.
inline int32x2_t exact2(float64x2_t x, float64x2_t lo, float64x2_t step) {
  return vmovn_s64(vcvtq_s64_f64(vdivq_f64(vsubq_f64(x, lo), step)));
}

class Binner {
 public:
  explicit Binner(const Binning& b)
      : lo_(vdupq_n_f64(b.lo)),
        step_(vdupq_n_f64(b.step)),
        lo32_(vdupq_n_f32(b.lo32)),
        inv_below_(vdupq_n_f32(b.inv_below)),
        inv_above_(vdupq_n_f32(b.inv_above)),
        last_(vdupq_n_s32(b.bins - 1)),
        estimate_(b.estimate) {}

  uint16x4_t operator()(float32x4_t x) const {
    const float32x4_t offset = vsubq_f32(x, lo32_);
    int32x4_t index = clamp(vcvtq_s32_f32(vmulq_f32(offset, inv_below_)));
    const int32x4_t above = clamp(vcvtq_s32_f32(vmulq_f32(offset, inv_above_)));
    const bool sure = vminvq_u32(vceqq_s32(index, above)) != 0 && estimate_;
    if (__builtin_expect(!sure, 0)) index = clamp(exact(x));
    return vmovn_u32(vreinterpretq_u32_s32(index));
  }

 private:
  int32x4_t clamp(int32x4_t index) const { return vminq_s32(index, last_); }

  int32x4_t exact(float32x4_t x) const {
    const int32x2_t low = exact2(vcvt_f64_f32(vget_low_f32(x)), lo_, step_);
    return vcombine_s32(low, exact2(vcvt_high_f64_f32(x), lo_, step_));
  }

  float64x2_t lo_, step_;
  float32x4_t lo32_, inv_below_, inv_above_;
  int32x4_t last_;
  bool estimate_;
};

}  // namespace

Extent extent_neon(const float* x, size_t n) {
  const float inf = __builtin_inff();
  const Range empty{vdupq_n_f32(inf), vdupq_n_f32(-inf)};
  Range r[4] = {empty, empty, empty, empty};
  uint32x4_t good = vdupq_n_u32(~0u);
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + i + kLanes);
    const float32x4_t c = vld1q_f32(x + i + 2 * kLanes), d = vld1q_f32(x + i + 3 * kLanes);
    r[0].add(a);
    r[1].add(b);
    r[2].add(c);
    r[3].add(d);
    good = vandq_u32(good, vandq_u32(numbers(a, b), numbers(c, d)));
  }
  for (; i < n; i += kLanes) {
    const float32x4_t v = n - i >= kLanes ? vld1q_f32(x + i) : load_some(x + i, n - i);
    r[0].add(v);
    good = vandq_u32(good, numbers(v, v));
  }
  for (int k = 1; k < 4; ++k) {
    r[0].min = vminnmq_f32(r[0].min, r[k].min);
    r[0].max = vmaxnmq_f32(r[0].max, r[k].max);
  }
  Extent e{vminnmvq_f32(r[0].min) + 0.0f, vmaxnmvq_f32(r[0].max) + 0.0f, true};
  e.finite = n == 0 || (vminvq_u32(good) != 0 && e.min > -inf && e.max < inf);
  return e;
}

void columns_neon(const float* x, size_t rows, size_t width, float* min, float* max) {
  size_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    Range a{vld1q_f32(min + c), vld1q_f32(max + c)};
    const float* p = x + c;
    for (size_t r = 0; r < rows; ++r, p += width) a.add(vld1q_f32(p));
    vst1q_f32(min + c, a.min);
    vst1q_f32(max + c, a.max);
  }
  for (; c < width; ++c) {
    const float* p = x + c;
    for (size_t r = 0; r < rows; ++r, p += width) {
      min[c] = *p < min[c] ? *p : min[c];
      max[c] = *p > max[c] ? *p : max[c];
    }
  }
}

size_t bin_indices_neon(const float* x, size_t n, const Binning& binning, uint16_t* index) {
  const Binner bin(binning);
  uint16_t* out = index;  // never ahead of i
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const float32x4_t v = vld1q_f32(x + i);
    vst1_u16(out, bin(v));
    // Only whole vectors of zeros are left out, by letting the next one overwrite them.
    const uint32x4_t zero = vceqzq_f32(v);
    out += vminvq_u32(zero) != 0 ? 0 : kLanes;
  }
  if (i < n) {
    uint16_t last[kLanes];
    vst1_u16(last, bin(load_some(x + i, n - i)));
    for (size_t k = 0; i < n; ++i, ++k) *out++ = last[k];
  }
  return static_cast<size_t>(out - index);
}

void from_half_neon(const uint16_t* x, size_t n, float* y) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    vst1q_f32(y + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
  }
  if (i < n) from_half_scalar(x + i, n - i, y + i);
}

void gram_neon(const float* left, const float* right, size_t rows, float* sums) {
  gram_panels<4, 16>(left, right, rows, sums);
}

}  // namespace lucid_fx::observe
