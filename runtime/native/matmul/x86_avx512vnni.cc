#include <immintrin.h>

#include "kernel_file.h"
#include "matmul.h"

namespace lucid_fx::matmul {
namespace {

#include "rows.inc"

struct Avx512Vnni {
  static constexpr int kRows = 8, kParts = 1;
  static constexpr bool kSideBySide = true;
  using Codes = __m512i;
  using Sums = __m512i;
  using Floats = __m512;

  static Codes load_codes(const uint8_t* x) { return _mm512_loadu_si512(x); }
  template <int kBits>
  static Codes field(Codes packed, int i) {
    if (kBits == 8) return packed;
    return _mm512_and_si512(_mm512_srli_epi16(packed, i * kBits),
                            _mm512_set1_epi8((1 << kBits) - 1));
  }
  static Codes four(const int8_t* x) {
    int32_t word;
    __builtin_memcpy(&word, x, sizeof word);
    return _mm512_set1_epi32(word);
  }

  template <int kBits>
  struct Products {
    using Partial = Sums;
    static constexpr size_t kDots = kMaxBlock;
    static Partial begin(Sums sum) { return sum; }
    static Partial add(Partial p, Codes w, Codes a) { return _mm512_dpbusd_epi32(p, w, a); }
    static Sums end(Sums, Partial p) { return p; }
  };

  static Sums ints(int32_t x) { return _mm512_set1_epi32(x); }
  static Sums plus(Sums a, Sums b) { return _mm512_add_epi32(a, b); }
  static Sums load_ints(const uint8_t* x) { return _mm512_loadu_si512(x); }
  template <int kBits>
  static Sums bits(Sums packed, int from) {
    return _mm512_and_si512(_mm512_srli_epi32(packed, from), ints((1 << kBits) - 1));
  }

  static Floats floats(float x) { return _mm512_set1_ps(x); }
  static Floats load_floats(const float* x) { return _mm512_loadu_ps(x); }
  static Floats load_halves(const uint16_t* x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
  static Floats load_bfloats(const uint16_t* x) {
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static Sums load_wide(const uint8_t* x) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  }
  static Floats load_bytes(const uint8_t* x) { return to_floats(load_wide(x)); }
  static Floats load_ue4m3(const uint8_t* x) {
    const Sums code = _mm512_and_si512(load_wide(x), ints(0x7f));
    const Floats number = _mm512_castsi512_ps(_mm512_slli_epi32(code, 20));
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(code, ints(0x7f));
    return _mm512_mask_mov_ps(times(number, floats(0x1p120f)), nan, floats(__builtin_nanf("")));
  }
  static void store_floats(float* y, Floats x) { _mm512_storeu_ps(y, x); }
  static Floats to_floats(Sums x) { return _mm512_cvtepi32_ps(x); }
  static Floats minus(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
};

using V = Avx512Vnni;
#include "tiles.inc"

}  // namespace

const Kernels kernels_avx512vnni = LUCID_FX_MATMUL_KERNEL_SET("avx512vnni", kAvx512 | kAvx512Vnni);

}  // namespace lucid_fx::matmul
