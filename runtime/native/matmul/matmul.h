// Y = A * W + bias, with A in float32 and W in packed codes of 2, 4 or 8 bits.
//
// The packed layout. Columns of W (N of them) go in panels of 16; rows (K) in blocks that share one
// scale per column. Inside a block, the codes of 4 consecutive rows and 16 columns fill 64 bytes,
// column by column; a byte holds 8 / bits fields, the lower rows in the lower bits:
//
//   byte(panel, block, group, column, j), field i  =  code[row][16 * panel + column]
//   row = block_size * block + (32 / bits) * group + 4 * i + j
//
// That is what an instruction with four-way dot products reads: one register of 64 bytes (two of
// 32, four of 16) gives, after a shift and a mask, four products for each of 16 columns. A code is
// stored unsigned, code + 2^(bits - 1) for signed values. Rows past K and columns past N hold code
// zero and scale zero. Scales, and zero points where there are any, lie as [panel][block][column].
//
// Two ways to multiply. In float, y = sum_k a_k * ((code_k - zero_point) * scale), with one
// rounding per weight and one fused multiply-add per product, in the order of k. In integers, each
// block of a row of A is first rounded to 8 bits,
//
//   y = sum_blocks (scale_a * scale_w) * (sum_k a_k * code_k - zero_point * sum_k a_k)
//
// where the inner sums are exact, whatever the instruction set: no kernel saturates.
//
// scalar.cc is the definition: every other file of kernels.inc must give the same integer sums.
//
// Files under this header are compiled with their own -m flags. It therefore holds no inline
// function and includes nothing that does: an inline function compiled for AVX-512 could be the
// copy that the linker keeps for everybody.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lucid_fx::matmul {

constexpr size_t kPanel = 16;      // columns
constexpr size_t kMaxRows = 8;     // of A, in a tile
constexpr int kSide = 4;           // panels that one row takes side by side
constexpr size_t kMaxBlock = 256;  // rows of W under one scale
constexpr int64_t kLayoutVersion = 1;

// All but the first four follow from them; make_layout fills them in.
struct Layout {
  size_t k, n, block;
  int bits;  // 2, 4 or 8
  size_t panels, blocks, padded_k;
  size_t panel_bytes;   // of codes
  size_t panel_scales;  // blocks * kPanel
};

// A tile of quantized rows of A. The four arrays are interleaved by row, as the kernels read them.
struct QuantizedRows {
  int8_t* codes;    // [padded_k / 4][rows][4]
  float* scales;    // [blocks][rows]: real value of a code step, of either sign
  int32_t* starts;  // [blocks][rows]: the sum of the codes, times -2^(bits - 1)
  size_t rows;
};

struct FloatRows {
  const float* values;  // padded_k of them readable
  size_t stride;
  size_t rows;
};

enum class ScaleType { kFloat32, kFloat16, kBFloat16, kUE4M3 };

// 16 columns of W and some blocks of its rows, as they lie in the file. The real scale is
// global * scale. While a kernel is at codes[i] it asks the memory for ahead[i >> ahead_shift].
struct Panel {
  size_t blocks;
  const uint8_t* codes;
  const void* scales;  // [blocks][kPanel]
  ScaleType scale_type;
  size_t scale_bytes;
  float global;
  const uint8_t* zeros;  // [blocks][kPanel], or null for 2^(bits - 1) everywhere
  const uint8_t* ahead;
  int ahead_shift;
};

// Where a tile times a panel goes, y[r * stride + column], and what the products are added to,
// start[r * start_stride + column]: a bias, or y itself.
struct Target {
  float* y;
  size_t stride;
  const float* start;
  size_t start_stride;
};

struct Kernels {
  const char* name;
  uint32_t needs;   // Isa bits
  size_t max_rows;  // in a tile, at most kMaxRows
  // Rounds rows of k values to 8 bits, block by block. A block that holds a value that is not
  // finite gets a scale that is not finite either.
  void (*quantize_rows)(const Layout& layout, const FloatRows& from, const QuantizedRows& to);
  // One tile times one panel, over the panel's blocks.
  void (*tile)(const Layout& layout, const QuantizedRows& a, const Panel& w, const Target& to);
  // One row times kSide whole panels that follow each other, `w` being the first; null where that
  // is no faster than one after the other.
  void (*row)(const Layout& layout, const QuantizedRows& a, const Panel& w, const Target& to);
  void (*float_tile)(const Layout& layout, const FloatRows& a, const Panel& w, const Target& to);
  void (*from_half)(const uint16_t* x, size_t n, float* y);
  void (*to_half)(const float* x, size_t n, uint16_t* y);  // ties to even
};

// All kernel sets built into this library, best first; the scalar one is last.
struct KernelList {
  const Kernels* const* first;
  size_t count;
};
KernelList all_kernels();

// The best set this machine runs, or the named one; null when it is unknown or cannot run here.
const Kernels* find_kernels(const char* name = nullptr);

#define LUCID_FX_MATMUL_KERNELS(needs, isa) extern const Kernels kernels_##isa;
#include "kernels.inc"
#undef LUCID_FX_MATMUL_KERNELS

}  // namespace lucid_fx::matmul
