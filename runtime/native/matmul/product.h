// One matrix product around the kernels: tiles, threads, other scale types, edges.
#pragma once

#include <string>

#include "../parallel.h"
#include "matmul.h"

namespace lucid_fx::matmul {

// Throws InvalidArgument for a block or a width that no kernel has, or sizes that overflow.
Layout make_layout(int64_t k, int64_t n, int64_t block, int64_t bits);

ScaleType parse_scale_type(const std::string& name);  // f32, f16, bf16 or ue4m3
size_t scale_bytes(ScaleType type);

// W as it lies in the file. Every array has the size that `layout` says.
struct Weights {
  Layout layout;
  const uint8_t* codes;
  const void* scales;
  ScaleType scale_type;
  float global;          // factor of all scales
  const uint8_t* zeros;  // [panels][blocks][kPanel] or null
  const float* bias;     // [n] or null
};

enum class Compute { kInt8, kFloat32 };

Compute parse_compute(const std::string& name);  // int8 or float32

// y[m, n] = a[m, k] * W + bias. The bits do not depend on `parallel`.
void multiply(const Weights& weights, Compute compute, const Kernels& kernels,
              const Parallel& parallel, const float* a, size_t m, float* y);

}  // namespace lucid_fx::matmul
