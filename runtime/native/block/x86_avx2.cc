// The kernels for AVX2.
#include <immintrin.h>

#define LUCID_FX_BLOCK_OWN_DECODE
#define LUCID_FX_BLOCK_ISA(function) function##_avx2
#include "loops.inc"

namespace lucid_fx::block {
namespace {

constexpr size_t kLanes = 8;

struct SmallTable {  // up to 16 entries, in two registers
  __m256 low, high;

  explicit SmallTable(const Table& t) {
    alignas(32) float all[2 * kLanes];
    for (size_t i = 0; i < 2 * kLanes; ++i) all[i] = t.entries[i & ((size_t{1} << t.bits) - 1)];
    low = _mm256_load_ps(all);
    high = _mm256_load_ps(all + kLanes);
  }
  __m256 operator()(__m128i codes) const {
    const __m256i index = _mm256_cvtepu8_epi32(codes);
    const __m256 bit3 = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index),
                            _mm256_permutevar8x32_ps(high, index), bit3);
  }
};

struct Integers {
  __m256 operator()(__m128i codes) const { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)); }
};

struct LargeTable {
  const float* entries;
  __m256 operator()(__m128i codes) const {
    return _mm256_i32gather_ps(entries, _mm256_cvtepu8_epi32(codes), 4);
  }
};

template <class Look>
void decode(const uint8_t* codes, const float* scale, size_t n, const Table& t, bool stream,
            const Look& look, float* y) {
  const uint32_t mask = (1u << t.bits) - 1u;
  size_t i = 0;
  for (; stream && i < n && reinterpret_cast<uintptr_t>(y + i) % 32 != 0; ++i) {
    y[i] = t.entries[codes[i] & mask] * scale[i];
  }
  for (; i + kLanes <= n; i += kLanes) {
    const __m128i c = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i));
    const __m256 v = _mm256_mul_ps(look(c), _mm256_loadu_ps(scale + i));
    if (stream) {
      _mm256_stream_ps(y + i, v);
    } else {
      _mm256_storeu_ps(y + i, v);
    }
  }
  for (; i < n; ++i) y[i] = t.entries[codes[i] & mask] * scale[i];
  if (stream) _mm_sfence();
}

}  // namespace

void decode_avx2(const uint8_t* codes, const float* scale, size_t n, const Table& t, bool stream,
                 float* y) {
  if (t.bits <= 4) {
    decode(codes, scale, n, t, stream, SmallTable(t), y);
  } else if (t.integers) {
    decode(codes, scale, n, t, stream, Integers(), y);
  } else {
    decode(codes, scale, n, t, stream, LargeTable{t.entries}, y);
  }
}

}  // namespace lucid_fx::block
