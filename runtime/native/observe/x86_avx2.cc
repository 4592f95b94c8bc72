// AVX2 and F16C: 8 floats at a time.
#include <immintrin.h>

#include "../unrolled.h"
#include "observe.h"

namespace lucid_fx::observe {
namespace {

#include "gram.inc"

constexpr size_t kLanes = 8;

// min_ps and max_ps return their second operand when either is NaN: with the accumulator second a
// NaN never enters it, and only has to be noticed.
struct Range {
  __m256 min, max;
  void add(__m256 v) {
    min = _mm256_min_ps(v, min);
    max = _mm256_max_ps(v, max);
  }
};

inline __m256 any_nan(__m256 a, __m256 b) { return _mm256_cmp_ps(a, b, _CMP_UNORD_Q); }

inline __m256i first_lanes(size_t n) {  // n <= 8
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

// Up to eight elements; the lanes past the end repeat the first.
inline __m256 load_some(const float* x, size_t n) {
  const __m256i m = first_lanes(n);
  const __m256 v = _mm256_maskload_ps(x, m);
  return _mm256_blendv_ps(_mm256_set1_ps(x[0]), v, _mm256_castsi256_ps(m));
}

inline float reduce_min(__m256 v) {
  __m128 m = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_min_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_min_ss(m, _mm_movehdup_ps(m)));
}

inline float reduce_max(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// The float64 quotients of four values, truncated.
inline __m128i exact4(__m128 x, __m256d lo, __m256d step) {
  return _mm256_cvttpd_epi32(_mm256_div_pd(_mm256_sub_pd(_mm256_cvtps_pd(x), lo), step));
}

class Binner {
 public:
  explicit Binner(const Binning& b)
      : lo_(_mm256_set1_pd(b.lo)),
        step_(_mm256_set1_pd(b.step)),
        lo32_(_mm256_set1_ps(b.lo32)),
        inv_below_(_mm256_set1_ps(b.inv_below)),
        inv_above_(_mm256_set1_ps(b.inv_above)),
        last_(_mm256_set1_epi32(b.bins - 1)),
        estimate_(b.estimate) {}

  __m256i operator()(__m256 x) const {
    const __m256 offset = _mm256_sub_ps(x, lo32_);
    const __m256i below = clamp(_mm256_cvttps_epi32(_mm256_mul_ps(offset, inv_below_)));
    const __m256i above = clamp(_mm256_cvttps_epi32(_mm256_mul_ps(offset, inv_above_)));
    const bool sure = _mm256_movemask_epi8(_mm256_cmpeq_epi32(below, above)) == -1 && estimate_;
    return __builtin_expect(sure, 1) ? below : clamp(exact(x));
  }

 private:
  __m256i clamp(__m256i index) const { return _mm256_min_epi32(index, last_); }

  __m256i exact(__m256 x) const {
    const __m128i low = exact4(_mm256_castps256_ps128(x), lo_, step_);
    const __m128i high = exact4(_mm256_extractf128_ps(x, 1), lo_, step_);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  }

  __m256d lo_, step_;
  __m256 lo32_, inv_below_, inv_above_;
  __m256i last_;
  bool estimate_;
};

inline __m128i narrow(__m256i v) {
  return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

// For each set of lanes the byte shuffle that moves its 16-bit lanes to the front.
struct Compress {
  alignas(16) uint8_t shuffle[256][16];

  constexpr Compress() : shuffle() {
    for (int lanes = 0; lanes < 256; ++lanes) {
      int to = 0;
      for (int lane = 0; lane < 8; ++lane) {
        if ((lanes >> lane & 1) == 0) continue;
        shuffle[lanes][to++] = static_cast<uint8_t>(2 * lane);
        shuffle[lanes][to++] = static_cast<uint8_t>(2 * lane + 1);
      }
    }
  }

  __m128i operator()(int lanes, __m128i v) const {
    return _mm_shuffle_epi8(v, _mm_load_si128(reinterpret_cast<const __m128i*>(shuffle[lanes])));
  }
};
constexpr Compress compress;

inline int not_zero(__m256 v) {
  return _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NEQ_UQ));
}

}  // namespace

Extent extent_avx2(const float* x, size_t n) {
  const __m256 inf = _mm256_set1_ps(__builtin_inff());
  const Range empty{inf, _mm256_sub_ps(_mm256_setzero_ps(), inf)};
  Range r[4] = {empty, empty, empty, empty};
  __m256 nan = _mm256_setzero_ps();
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + kLanes);
    const __m256 c = _mm256_loadu_ps(x + i + 2 * kLanes), d = _mm256_loadu_ps(x + i + 3 * kLanes);
    r[0].add(a);
    r[1].add(b);
    r[2].add(c);
    r[3].add(d);
    nan = _mm256_or_ps(nan, _mm256_or_ps(any_nan(a, b), any_nan(c, d)));
  }
  for (; i < n; i += kLanes) {
    const __m256 v = n - i >= kLanes ? _mm256_loadu_ps(x + i) : load_some(x + i, n - i);
    r[0].add(v);
    nan = _mm256_or_ps(nan, any_nan(v, v));
  }
  const __m256 min =
      _mm256_min_ps(_mm256_min_ps(r[0].min, r[1].min), _mm256_min_ps(r[2].min, r[3].min));
  const __m256 max =
      _mm256_max_ps(_mm256_max_ps(r[0].max, r[1].max), _mm256_max_ps(r[2].max, r[3].max));
  Extent e{reduce_min(min) + 0.0f, reduce_max(max) + 0.0f, true};
  const bool numbers = _mm256_movemask_ps(nan) == 0;
  e.finite = n == 0 || (numbers && e.min > -__builtin_inff() && e.max < __builtin_inff());
  return e;
}

void columns_avx2(const float* x, size_t rows, size_t width, float* min, float* max) {
  size_t c = 0;
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    Range a{_mm256_loadu_ps(min + c), _mm256_loadu_ps(max + c)};
    Range b{_mm256_loadu_ps(min + c + kLanes), _mm256_loadu_ps(max + c + kLanes)};
    const float* p = x + c;
    for (size_t r = 0; r < rows; ++r, p += width) {
      a.add(_mm256_loadu_ps(p));
      b.add(_mm256_loadu_ps(p + kLanes));
    }
    _mm256_storeu_ps(min + c, a.min);
    _mm256_storeu_ps(max + c, a.max);
    _mm256_storeu_ps(min + c + kLanes, b.min);
    _mm256_storeu_ps(max + c + kLanes, b.max);
  }
  for (; c < width; c += kLanes) {
    const __m256i m = first_lanes(width - c < kLanes ? width - c : kLanes);
    Range a{_mm256_maskload_ps(min + c, m), _mm256_maskload_ps(max + c, m)};
    const float* p = x + c;
    for (size_t r = 0; r < rows; ++r, p += width) a.add(_mm256_maskload_ps(p, m));
    _mm256_maskstore_ps(min + c, m, a.min);
    _mm256_maskstore_ps(max + c, m, a.max);
  }
}

size_t bin_indices_avx2(const float* x, size_t n, const Binning& binning, uint16_t* index) {
  const Binner bin(binning);
  uint16_t* out = index;  // never ahead of i: a whole vector may be stored there
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 v = _mm256_loadu_ps(x + i);
    const int keep = not_zero(v);
    const __m128i bins = compress(keep, narrow(bin(v)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bins);
    out += __builtin_popcount(static_cast<unsigned>(keep));
  }
  if (i < n) {
    alignas(16) uint16_t last[kLanes];
    _mm_store_si128(reinterpret_cast<__m128i*>(last), narrow(bin(load_some(x + i, n - i))));
    for (size_t k = 0; i < n; ++i, ++k) *out++ = last[k];  // a few zeros do no harm
  }
  return static_cast<size_t>(out - index);
}

void from_half_avx2(const uint16_t* x, size_t n, float* y) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(halves));
  }
  for (; i < n; ++i) y[i] = _cvtsh_ss(x[i]);
}

void gram_avx2(const float* left, const float* right, size_t rows, float* sums) {
  gram_panels<4, 32>(left, right, rows, sums);
}

}  // namespace lucid_fx::observe
