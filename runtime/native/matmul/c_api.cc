#include "../c_api.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "../c_api_errors.h"
#include "../invalid_argument.h"
#include "pack.h"

namespace {

using namespace lucid_fx;

matmul::Layout to_layout(const lfx_matmul_layout& from) {
  return matmul::make_layout(from.k, from.n, from.block, from.bits);
}

const matmul::Kernels& to_kernels(const char* isa) { return found(matmul::find_kernels(isa), isa); }

matmul::RealWeights to_weights(const float* w, int64_t row_stride, int64_t column_stride) {
  return {w, static_cast<size_t>(row_stride), static_cast<size_t>(column_stride)};
}

}  // namespace

int lfx_matmul_sizes(const lfx_matmul_layout* layout, int64_t* panels, int64_t* blocks,
                     int64_t* panel_bytes) {
  return guarded([&] {
    const matmul::Layout sizes = to_layout(*layout);
    *panels = static_cast<int64_t>(sizes.panels);
    *blocks = static_cast<int64_t>(sizes.blocks);
    *panel_bytes = static_cast<int64_t>(sizes.panel_bytes);
  });
}

int lfx_matmul_pack(const lfx_matmul_layout* layout, const uint8_t* codes, uint8_t* packed,
                    int32_t threads) {
  return guarded([&] {
    matmul::pack(to_layout(*layout), Threads(static_cast<size_t>(threads)), codes, packed);
  });
}

int lfx_matmul_unpack(const lfx_matmul_layout* layout, const uint8_t* packed, uint8_t* codes,
                      int32_t threads) {
  return guarded([&] {
    matmul::unpack(to_layout(*layout), Threads(static_cast<size_t>(threads)), packed, codes);
  });
}

int lfx_matmul_extremes(const lfx_matmul_layout* layout, const float* w, int64_t row_stride,
                        int64_t column_stride, float* least, float* greatest, int32_t* finite,
                        int32_t threads) {
  return guarded([&] {
    *finite = matmul::extremes(to_layout(*layout), Threads(static_cast<size_t>(threads)),
                               to_weights(w, row_stride, column_stride), least, greatest);
  });
}

int lfx_matmul_encode(const lfx_matmul_layout* layout, const float* w, int64_t row_stride,
                      int64_t column_stride, const float* scales, const uint8_t* zeros, int32_t low,
                      uint8_t* codes, int32_t threads) {
  return guarded([&] {
    matmul::encode(to_layout(*layout), Threads(static_cast<size_t>(threads)),
                   to_weights(w, row_stride, column_stride), scales, zeros, low, codes);
  });
}

int lfx_matmul(const lfx_matmul_layout* layout, const uint8_t* packed, const void* scales,
               const char* scale_type, float global_scale, const uint8_t* zeros, const float* bias,
               const char* compute, const float* a, int64_t m, float* y, int32_t threads,
               const char* isa) {
  return guarded([&] {
    const matmul::Weights weights{
        to_layout(*layout), packed, scales, matmul::parse_scale_type(scale_type),
        global_scale,       zeros,  bias};
    matmul::multiply(weights, matmul::parse_compute(compute), to_kernels(isa),
                     Threads(static_cast<size_t>(threads)), a, static_cast<size_t>(m), y);
  });
}

uint64_t lfx_read_bytes(const void* data, size_t bytes, int32_t threads) {
  constexpr size_t kTask = 1 << 20;  // words
  constexpr size_t kLine = 8;        // a sum each, or the loop's speed hangs on where it is linked
  const size_t words = bytes / sizeof(uint64_t);
  const auto* from = static_cast<const uint64_t*>(data);
  std::atomic<uint64_t> total{0};
  const Threads parallel(static_cast<size_t>(threads));
  parallel_for(parallel, (words + kTask - 1) / kTask, [&](size_t task) {
    uint64_t sums[kLine] = {};
    const size_t last = std::min(words, (task + 1) * kTask);
    size_t i = task * kTask;
    for (; i + kLine <= last; i += kLine) {
      for (size_t j = 0; j < kLine; ++j) sums[j] += from[i + j];
    }
    for (; i < last; ++i) sums[0] += from[i];
    for (const uint64_t sum : sums) total += sum;
  });
  return total;
}

const char* lfx_matmul_isa(size_t i, int32_t* runs) {
  const matmul::KernelList kernels = matmul::all_kernels();
  if (i >= kernels.count) return nullptr;
  *runs = matmul::find_kernels(kernels.first[i]->name) != nullptr;
  return kernels.first[i]->name;
}
