// The arithmetic of observing a tensor, as four small kernels over contiguous float32.
//
//   extent       min_i x_i, max_i x_i, and whether every x_i is finite
//   columns      min_c = min(min_c, min_r x[r, c]), the same for max
//   bin_indices  min(trunc((x_i - lo) / step), bins - 1), evaluated in float64, of every x_i != 0
//   from_half    IEEE binary16 to float32
//   gram         sums[i][j] = sum_r left[r][i] * right[r][j], of two panels of 16 columns
//
// scalar.cc is the definition: every other file of kernels.inc must give the same bits.
//
// Files under this header are compiled with their own -m flags. It therefore holds no inline
// function and includes nothing that does: an inline function compiled for AVX-512 could be the
// copy that the linker keeps for everybody.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lucid_fx::observe {

// Without any element: (+inf, -inf, true). When not finite, min and max mean nothing. Zeros are +0.
struct Extent {
  float min;
  float max;
  bool finite;
};

constexpr int kMaxBins = 65536;  // an index fits 16 bits
constexpr size_t kGramLanes = 16;

// `bins` equal bins over [lo, hi]. A range of one point is binned as [lo, lo + 1].
struct Binning {
  double lo;
  double step;
  int bins;

  // A float32 evaluation (x - lo) * inv has three roundings, so it is within 3 * 2^-24 of the exact
  // quotient, relatively. With inv = (1 -+ 2^-22) / step it is surely below, or above, and where
  // both truncate to the same index that is the index. Only the others need the float64 division.
  // `estimate` is false where float32 could overflow or lose digits to underflow.
  float lo32;
  float inv_below;
  float inv_above;
  bool estimate;
};

Binning make_binning(float lo, float hi, int bins);

struct Kernels {
  const char* name;
  uint32_t needs;  // Isa bits
  Extent (*extent)(const float* x, size_t n);
  void (*columns)(const float* x, size_t rows, size_t width, float* min, float* max);
  // Zeros are half of the data after a ReLU and all go to one bin, so they are not worth an index
  // each. Writes the others' indices in order and returns how many; a kernel may write more of
  // them, for zeros, but never past index[n - 1].
  size_t (*bin_indices)(const float* x, size_t n, const Binning& binning, uint16_t* index);
  void (*from_half)(const uint16_t* x, size_t n, float* y);
  void (*gram)(const float* left, const float* right, size_t rows, float* sums);
};

// All kernel sets built into this library, best first; the scalar one is last.
struct KernelList {
  const Kernels* first;
  size_t count;
};
KernelList all_kernels();

// The best set this machine runs, or the named one; null when it is unknown or cannot run here.
const Kernels* find_kernels(const char* name = nullptr);

#define LUCID_FX_OBSERVE_KERNELS(needs, isa)                                                   \
  Extent extent_##isa(const float* x, size_t n);                                               \
  void columns_##isa(const float* x, size_t rows, size_t width, float* min, float* max);       \
  size_t bin_indices_##isa(const float* x, size_t n, const Binning& binning, uint16_t* index); \
  void from_half_##isa(const uint16_t* x, size_t n, float* y);                                 \
  void gram_##isa(const float* left, const float* right, size_t rows, float* sums);
#include "kernels.inc"
#undef LUCID_FX_OBSERVE_KERNELS

}  // namespace lucid_fx::observe
