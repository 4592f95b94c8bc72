// Shared by the passes: tasks, and float32 blocks of a tensor of any element type.
#pragma once

#include <algorithm>

#include "passes.h"

namespace lucid_fx::observe {

constexpr size_t kTask = 65536;  // elements; 256 KiB of float32 stay in a core's second-level cache
constexpr size_t kBlock = 1024;  // elements converted at a time

inline size_t divide_up(size_t n, size_t by) { return (n + by - 1) / by; }

// Calls body(const float* x, size_t n) for consecutive blocks of the elements [begin, end). A
// float32 tensor is one block, in place.
template <class Body>
void for_each_block(const Kernels& kernels, const Tensor& x, size_t begin, size_t end,
                    Body&& body) {
  if (x.type == ElementType::kFloat32) {
    return body(static_cast<const float*>(x.data) + begin, end - begin);
  }
  alignas(64) float block[kBlock];
  for (size_t i = begin; i < end; i += kBlock) {
    const size_t n = std::min(kBlock, end - i);
    if (x.type == ElementType::kFloat16) {
      kernels.from_half(static_cast<const uint16_t*>(x.data) + i, n, block);
    } else {
      const double* from = static_cast<const double*>(x.data) + i;
      for (size_t k = 0; k < n; ++k) block[k] = static_cast<float>(from[k]);
    }
    body(block, n);
  }
}

}  // namespace lucid_fx::observe
