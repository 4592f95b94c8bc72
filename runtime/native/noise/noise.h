// The noise of a tensor against its float twin, in one pass over both.
//
// The numpy sums of lucid_fx/tensor_error.py are the definition: counts and extremes are the same
// numbers, sums of squares differ by the order of additions. All kernel sets give the same bits.
//
// Files under this header are compiled with their own -m flags. It therefore holds no inline
// function and includes nothing that does: an inline function compiled for AVX2 could be the copy
// that the linker keeps for everybody.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lucid_fx::noise {

constexpr float kLargest = 1e16f;  // values beyond it, infinities and NaN are left out

// How a code (or a real value) becomes what is compared, and where the grid ends.
struct Form {
  float zero_point, scale;
  float needed_low, needed_high;  // real values are clamped to them
  float below, above;             // a float value is outside the grid when it is beyond them
  double low, high;               // ends of the grid, what is outside is measured from there
};

struct Sums {
  double signal, noise, outside;
  float largest, low, high;
  int64_t elements, clipped;
};

enum class Type { kFloat, kUint8, kInt8 };

// Elements that are summed up in float32 before they go into a double.
constexpr size_t kBlock = 4096;

struct Kernels {
  const char* name;
  uint32_t needs;  // Isa bits
  // The sums of n <= kBlock elements without `outside` and `clipped`. False when a float value is
  // to be left out; the sums then mean nothing.
  bool (*sum)(const Form& form, Type type, const float* exact, const void* given, size_t n,
              Sums* sums);
};

// The best set this machine runs, or the named one; null when it is unknown or cannot run here.
const Kernels* find_kernels(const char* name = nullptr);

// Adds n elements to the sums.
void add(const Kernels& kernels, const Form& form, Type type, const float* exact, const void* given,
         size_t n, Sums* sums);

#define LUCID_FX_NOISE_KERNELS(needs, isa)                                                     \
  bool sum_##isa(const Form& form, Type type, const float* exact, const void* given, size_t n, \
                 Sums* sums);
#include "kernels.inc"
#undef LUCID_FX_NOISE_KERNELS

}  // namespace lucid_fx::noise
