// The arithmetic of block-scaled tensors, as four small kernels over contiguous elements.
//
//   encode   the code nearest to x_i / scale_i, clamped to the range of the format
//   decode   table[code_i] * scale_i
//   pack     fields of 2, 4 or 8 bits into bytes, the first into the lowest bits
//   unpack   the inverse; with a sign, the field's highest bit is copied to the bits above it
//
// The numpy engine of lucid_fx is the definition, and scalar.cc the same in C++: every file of
// kernels.inc must give the same bits.
//
// Files under this header are compiled with their own -m flags. It therefore holds no inline
// function and includes nothing that does: an inline function compiled for AVX-512 could be the
// copy that the linker keeps for everybody.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lucid_fx::block {

enum class Rounding : int32_t {
  kHalfAway = 0,    // integers, halves away from zero
  kHalfEven = 1,    // integers, halves to even
  kSmallFloat = 2,  // floats of a few bits, halves to the even code
};

// How a quotient becomes a code. A scale of zero makes the quotient zero.
struct Encoder {
  Rounding rounding;
  float low, high;   // what the quotient is clamped to, representable in the format
  int32_t mantissa;  // bits of the float format
  int32_t bias;      // of its exponent
  int32_t bits;      // of a code
};

// What every field stands for. Fields of fewer bits come with higher bits that mean nothing.
struct Table {
  const float* entries;  // 2^bits
  int bits;
  bool integers;  // entry i is i, sign-extended
};

struct Kernels {
  const char* name;
  uint32_t needs;  // Isa bits
  // Gives false when an element is NaN or infinite; its code then means nothing.
  bool (*encode)(const float* x, const float* scale, size_t n, const Encoder& encoder,
                 uint8_t* codes);
  // `stream` writes past the caches.
  void (*decode)(const uint8_t* codes, const float* scale, size_t n, const Table& table,
                 bool stream, float* y);
  // The last byte is filled up with zero bits.
  void (*pack)(const uint8_t* codes, size_t n, int bits, uint8_t* data);
  void (*unpack)(const uint8_t* data, size_t n, int bits, int sign, uint8_t* codes);
};

// The best set this machine runs, or the named one; null when it is unknown or cannot run here.
const Kernels* find_kernels(const char* name = nullptr);

#define LUCID_FX_BLOCK_KERNELS(needs, isa)                                                  \
  bool encode_##isa(const float* x, const float* scale, size_t n, const Encoder& encoder,   \
                    uint8_t* codes);                                                        \
  void decode_##isa(const uint8_t* codes, const float* scale, size_t n, const Table& table, \
                    bool stream, float* y);                                                 \
  void pack_##isa(const uint8_t* codes, size_t n, int bits, uint8_t* data);                 \
  void unpack_##isa(const uint8_t* data, size_t n, int bits, int sign, uint8_t* codes);
#include "kernels.inc"
#undef LUCID_FX_BLOCK_KERNELS

}  // namespace lucid_fx::block
