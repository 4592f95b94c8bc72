// The kernels for AVX-512.
#include <immintrin.h>

#define LUCID_FX_BLOCK_OWN_DECODE
#define LUCID_FX_BLOCK_ISA(function) function##_avx512
#include "loops.inc"

namespace lucid_fx::block {
namespace {

constexpr size_t kLanes = 16;

struct SmallTable {  // up to 16 entries, in one register
  __m512 entries;

  explicit SmallTable(const Table& t) {
    alignas(64) float all[kLanes];
    for (size_t i = 0; i < kLanes; ++i) all[i] = t.entries[i & ((size_t{1} << t.bits) - 1)];
    entries = _mm512_load_ps(all);
  }
  __m512 operator()(__m128i codes) const {
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), entries);
  }
};

struct Integers {
  __m512 operator()(__m128i codes) const { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)); }
};

struct LargeTable {
  const float* entries;
  __m512 operator()(__m128i codes) const {
    return _mm512_i32gather_ps(_mm512_cvtepu8_epi32(codes), entries, 4);
  }
};

template <class Look>
void decode(const uint8_t* codes, const float* scale, size_t n, const Table& t, bool stream,
            const Look& look, float* y) {
  const uint32_t mask = (1u << t.bits) - 1u;
  size_t i = 0;
  for (; stream && i < n && reinterpret_cast<uintptr_t>(y + i) % 64 != 0; ++i) {
    y[i] = t.entries[codes[i] & mask] * scale[i];
  }
  for (; i + kLanes <= n; i += kLanes) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i));
    const __m512 v = _mm512_mul_ps(look(c), _mm512_loadu_ps(scale + i));
    if (stream) {
      _mm512_stream_ps(y + i, v);
    } else {
      _mm512_storeu_ps(y + i, v);
    }
  }
  for (; i < n; ++i) y[i] = t.entries[codes[i] & mask] * scale[i];
  if (stream) _mm_sfence();
}

}  // namespace

void decode_avx512(const uint8_t* codes, const float* scale, size_t n, const Table& t, bool stream,
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
