// Whole tensors around the kernels: lines, blocks, tasks for threads.
//
// A tensor is cut into tasks by its shape, never by the number of threads, and no task writes what
// another one writes, so that any schedule gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../parallel.h"
#include "block.h"

namespace lucid_fx::block {

struct Machine {
  const Kernels& kernels;
  const Parallel& parallel;
};

// Where codes lie in memory. A line runs along the packed axis and is padded with zero bits to
// whole units. Lines follow each other in row-major order of the tensor whose packed axis has been
// swapped with the last one.
struct Packing {
  std::vector<size_t> dims;  // at least one
  size_t axis;
  size_t bits;  // of a field: 2, 4 or 8
  size_t unit;  // bytes

  size_t line_bytes() const;
};

// The blocks of a tensor and a number for each of them, row-major.
struct Blocks {
  std::vector<size_t> dims, extents;
};

void pack(const Machine& machine, const Packing& packing, const uint8_t* codes, uint8_t* data);

void unpack(const Machine& machine, const Packing& packing, const uint8_t* data, int sign,
            uint8_t* codes);

// Gives false when an element is NaN or infinite.
bool quantize(const Machine& machine, const Packing& packing, const Blocks& blocks, const float* x,
              const float* scales, const Encoder& encoder, uint8_t* data);

void dequantize(const Machine& machine, const Packing& packing, const Blocks& blocks,
                const uint8_t* data, const float* scales, const Table& table, float* y);

// The least and the greatest element of each block; zeros are +0. Gives false when an element is
// NaN or infinite; the extremes then mean nothing. `isa` as for observe::find_kernels.
bool extremes(const Parallel& parallel, const char* isa, const Blocks& blocks, const float* x,
              float* min, float* max);

}  // namespace lucid_fx::block
