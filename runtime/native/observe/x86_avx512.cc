// AVX-512 F, BW, DQ, VL: 16 floats at a time, tails by mask.
#include <immintrin.h>

#include "../unrolled.h"
#include "observe.h"

namespace lucid_fx::observe {
namespace {

#include "gram.inc"

constexpr size_t kLanes = 16;

inline __mmask16 first_lanes(size_t n) {
  return static_cast<__mmask16>(n >= kLanes ? 0xffffu : (1u << n) - 1u);
}

// min_ps and max_ps return their second operand when either is NaN: with the accumulator second a
// NaN never enters it, and only has to be noticed.
struct Range {
  __m512 min, max;
  void add(__m512 v) {
    min = _mm512_min_ps(v, min);
    max = _mm512_max_ps(v, max);
  }
};

inline __mmask16 any_nan(__m512 a, __m512 b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }

// The float64 quotients of eight values, truncated.
inline __m256i exact8(__m256 x, __m512d lo, __m512d step) {
  return _mm512_cvttpd_epi32(_mm512_div_pd(_mm512_sub_pd(_mm512_cvtps_pd(x), lo), step));
}

// Adding 2^23 towards zero leaves the truncated product in the lowest bits: one instruction instead
// of a product and a conversion. Offsets beyond the middle of the last bin count as that.
class Binner {
 public:
  explicit Binner(const Binning& b)
      : lo_(_mm512_set1_pd(b.lo)),
        step_(_mm512_set1_pd(b.step)),
        lo32_(_mm512_set1_ps(b.lo32)),
        most_(_mm512_set1_ps(static_cast<float>((b.bins - 0.5) * b.step))),
        inv_below_(_mm512_set1_ps(b.inv_below)),
        inv_above_(_mm512_set1_ps(b.inv_above)),
        last_(_mm512_set1_epi32(b.bins - 1)),
        estimate_(b.estimate) {}

  // The lower 16 bits of each are its index.
  __m512i operator()(__m512 x) const {
    const __m512 offset = _mm512_min_ps(_mm512_sub_ps(x, lo32_), most_);
    const __m512i below = low_bits(offset, inv_below_), above = low_bits(offset, inv_above_);
    const bool sure = _mm512_cmpneq_epi32_mask(below, above) == 0 && estimate_;
    return __builtin_expect(sure, 1) ? below : exact(x);
  }

 private:
  static __m512i low_bits(__m512 offset, __m512 inv) {
    constexpr int down = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
    const __m512 high = _mm512_set1_ps(0x1p23f);
    return _mm512_castps_si512(_mm512_fmadd_round_ps(offset, inv, high, down));
  }

  __m512i exact(__m512 x) const {
    const __m256i low = exact8(_mm512_castps512_ps256(x), lo_, step_);
    const __m256i high = exact8(_mm512_extractf32x8_ps(x, 1), lo_, step_);
    const __m512i index = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    return _mm512_min_epi32(index, last_);
  }

  __m512d lo_, step_;
  __m512 lo32_, most_, inv_below_, inv_above_;
  __m512i last_;
  bool estimate_;
};

}  // namespace

Extent extent_avx512(const float* x, size_t n) {
  const __m512 inf = _mm512_set1_ps(__builtin_inff());
  const Range empty{inf, _mm512_sub_ps(_mm512_setzero_ps(), inf)};
  Range r[4] = {empty, empty, empty, empty};
  __mmask16 nan = 0;
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const __m512 a = _mm512_loadu_ps(x + i), b = _mm512_loadu_ps(x + i + kLanes);
    const __m512 c = _mm512_loadu_ps(x + i + 2 * kLanes), d = _mm512_loadu_ps(x + i + 3 * kLanes);
    r[0].add(a);
    r[1].add(b);
    r[2].add(c);
    r[3].add(d);
    nan |= any_nan(a, b) | any_nan(c, d);
  }
  for (; i < n; i += kLanes) {  // lanes past the end repeat an element
    const __m512 v = _mm512_mask_loadu_ps(_mm512_set1_ps(x[i]), first_lanes(n - i), x + i);
    r[0].add(v);
    nan |= any_nan(v, v);
  }
  const __m512 min =
      _mm512_min_ps(_mm512_min_ps(r[0].min, r[1].min), _mm512_min_ps(r[2].min, r[3].min));
  const __m512 max =
      _mm512_max_ps(_mm512_max_ps(r[0].max, r[1].max), _mm512_max_ps(r[2].max, r[3].max));
  Extent e{_mm512_reduce_min_ps(min) + 0.0f, _mm512_reduce_max_ps(max) + 0.0f, true};
  e.finite = n == 0 || (nan == 0 && e.min > -__builtin_inff() && e.max < __builtin_inff());
  return e;
}

void columns_avx512(const float* x, size_t rows, size_t width, float* min, float* max) {
  size_t c = 0;
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    Range a{_mm512_loadu_ps(min + c), _mm512_loadu_ps(max + c)};
    Range b{_mm512_loadu_ps(min + c + kLanes), _mm512_loadu_ps(max + c + kLanes)};
    const float* p = x + c;
    for (size_t r = 0; r < rows; ++r, p += width) {
      a.add(_mm512_loadu_ps(p));
      b.add(_mm512_loadu_ps(p + kLanes));
    }
    _mm512_storeu_ps(min + c, a.min);
    _mm512_storeu_ps(max + c, a.max);
    _mm512_storeu_ps(min + c + kLanes, b.min);
    _mm512_storeu_ps(max + c + kLanes, b.max);
  }
  for (; c < width; c += kLanes) {
    const __mmask16 m = first_lanes(width - c);
    Range a{_mm512_maskz_loadu_ps(m, min + c), _mm512_maskz_loadu_ps(m, max + c)};
    const float* p = x + c;
    for (size_t r = 0; r < rows; ++r, p += width) a.add(_mm512_maskz_loadu_ps(m, p));
    _mm512_mask_storeu_ps(min + c, m, a.min);
    _mm512_mask_storeu_ps(max + c, m, a.max);
  }
}

size_t bin_indices_avx512(const float* x, size_t n, const Binning& binning, uint16_t* index) {
  const Binner bin(binning);
  const __m512 zero = _mm512_setzero_ps();
  uint16_t* out = index;  // never ahead of i: a whole vector may be stored there
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m512 v = _mm512_loadu_ps(x + i);
    const __mmask16 keep = _mm512_cmp_ps_mask(v, zero, _CMP_NEQ_UQ);
    const __m512i bins = _mm512_maskz_compress_epi32(keep, bin(v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(bins));
    out += __builtin_popcount(keep);
  }
  if (i < n) {  // lanes past the end repeat an element
    const __mmask16 m = first_lanes(n - i);
    const __m512 v = _mm512_mask_loadu_ps(_mm512_set1_ps(x[i]), m, x + i);
    const __mmask16 keep = _mm512_mask_cmp_ps_mask(m, v, zero, _CMP_NEQ_UQ);
    const __m512i bins = _mm512_maskz_compress_epi32(keep, bin(v));
    const size_t kept = static_cast<size_t>(__builtin_popcount(keep));
    _mm256_mask_storeu_epi16(out, first_lanes(kept), _mm512_cvtepi32_epi16(bins));
    out += kept;
  }
  return static_cast<size_t>(out - index);
}

void from_half_avx512(const uint16_t* x, size_t n, float* y) {
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask16 m = first_lanes(n - i);
    _mm512_mask_storeu_ps(y + i, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, x + i)));
  }
}

void gram_avx512(const float* left, const float* right, size_t rows, float* sums) {
  gram_panels<8, 64>(left, right, rows, sums);
}

}  // namespace lucid_fx::observe
