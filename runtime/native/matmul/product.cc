#include "product.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "../invalid_argument.h"

namespace lucid_fx::matmul {
namespace {

// Rows of A that are kept close to the core while all panels pass by.
constexpr size_t kGroupBytes = 512 * 1024;
// Work is cut into at most so many ranges of panels, whatever the number of threads.
constexpr size_t kTasks = 64;
constexpr size_t kSmallestTask = 16 * 1024;  // bytes of codes

template <class T>
std::unique_ptr<T[]> uninitialized(size_t n) {
  return std::unique_ptr<T[]>(new T[n]);
}

size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

// The quantized rows of A, tile after tile.
struct QuantizedTiles {
  QuantizedTiles(const Layout& layout, const Kernels& kernels, const Parallel& parallel,
                 const float* a, size_t m)
      : layout(layout),
        m(m),
        height(kernels.max_rows),
        codes(uninitialized<int8_t>(m * layout.padded_k)),
        scales(uninitialized<float>(m * layout.blocks)),
        starts(uninitialized<int32_t>(m * layout.blocks)) {
    const auto quantize = [&](size_t t) {
      const size_t first = t * height;
      kernels.quantize_rows(layout, {a + first * layout.k, layout.k, rows(t)}, (*this)[t]);
    };
    parallel_for(parallel, ceil_div(m, height), quantize);
  }

  size_t rows(size_t t) const { return std::min(height, m - t * height); }
  QuantizedRows operator[](size_t t) const {
    const size_t first = t * height;
    return {codes.get() + first * layout.padded_k, scales.get() + first * layout.blocks,
            starts.get() + first * layout.blocks, rows(t)};
  }

  const Layout& layout;
  const size_t m, height;
  const std::unique_ptr<int8_t[]> codes;
  const std::unique_ptr<float[]> scales;
  const std::unique_ptr<int32_t[]> starts;
};

// The rows of A as they are, or with zeros up to the end of the last block.
struct FloatTiles {
  FloatTiles(const Layout& layout, const Kernels& kernels, const float* a, size_t m)
      : m(m), height(kernels.max_rows), stride(layout.padded_k), values(a) {
    if (layout.padded_k == layout.k) return;
    padded = uninitialized<float>(m * stride);
    for (size_t r = 0; r < m; ++r) {
      float* row = padded.get() + r * stride;
      std::copy_n(a + r * layout.k, layout.k, row);
      std::fill(row + layout.k, row + stride, 0.0f);
    }
    values = padded.get();
  }

  FloatRows operator[](size_t t) const {
    return {values + t * height * stride, stride, std::min(height, m - t * height)};
  }

  const size_t m, height, stride;
  const float* values;
  std::unique_ptr<float[]> padded;
};

// One panel of the weights. `bias` holds its 16 numbers, which the file has only N of.
Panel read_panel(const Weights& weights, size_t p, float* bias) {
  const Layout& layout = weights.layout;
  const size_t at = p * layout.panel_scales;
  const auto* scales = static_cast<const uint8_t*>(weights.scales);
  std::fill_n(bias, kPanel, 0.0f);
  if (weights.bias != nullptr) {
    std::copy_n(weights.bias + p * kPanel, std::min(kPanel, layout.n - p * kPanel), bias);
  }
  return {weights.codes + p * layout.panel_bytes,
          scales + at * scale_bytes(weights.scale_type),
          weights.scale_type,
          scale_bytes(weights.scale_type),
          weights.global,
          weights.zeros == nullptr ? nullptr : weights.zeros + at,
          bias,
          nullptr,
          0};
}

// One tile alone reads its panel just in time, and the start of the next at the end. With more
// tiles the next panel arrives evenly over all of them.
void look_ahead(const Layout& layout, size_t tile, size_t tiles, Panel& panel) {
  constexpr size_t kDistance = 16384;
  panel.ahead_shift = 0;
  while (size_t{1} << panel.ahead_shift < tiles) ++panel.ahead_shift;
  const size_t share = layout.panel_bytes >> panel.ahead_shift;
  panel.ahead = panel.codes + (tiles == 1 ? kDistance : layout.panel_bytes + tile * share);
}

template <class Rows>
using TileKernel = void (*)(const Layout&, const Rows&, const Panel&, float*, size_t);

// One tile times one panel; the last panel may be narrower than the kernel writes.
template <class Rows>
void write_tile(const Layout& layout, TileKernel<Rows> kernel, const Rows& rows, const Panel& panel,
                size_t first_column, float* y) {
  const size_t columns = std::min(kPanel, layout.n - first_column);
  if (columns == kPanel) return kernel(layout, rows, panel, y + first_column, layout.n);
  float whole[kMaxRows * kPanel];
  kernel(layout, rows, panel, whole, kPanel);
  for (size_t r = 0; r < rows.rows; ++r) {
    std::copy_n(whole + r * kPanel, columns, y + r * layout.n + first_column);
  }
}

template <class Rows, class Tiles>
void multiply_tiles(const Weights& weights, const Parallel& parallel, TileKernel<Rows> kernel,
                    const Tiles& tiles, size_t tile_bytes, float* y) {
  const Layout& layout = weights.layout;
  const size_t count = ceil_div(tiles.m, tiles.height);
  const size_t group = std::max<size_t>(1, kGroupBytes / std::max<size_t>(1, tile_bytes));
  const size_t smallest = ceil_div(kSmallestTask, std::max<size_t>(1, layout.panel_bytes));
  const size_t share = std::max(ceil_div(layout.panels, kTasks), smallest);  // panels of a task
  const size_t tasks = ceil_div(layout.panels, share);

  for (size_t first = 0; first < count; first += group) {
    const size_t last = std::min(count, first + group);
    const auto work = [&](size_t i) {
      for (size_t p = i * share; p < std::min(layout.panels, (i + 1) * share); ++p) {
        float bias[kPanel];
        Panel panel = read_panel(weights, p, bias);
        for (size_t t = first; t < last; ++t) {
          look_ahead(layout, t - first, last - first, panel);
          float* rows = y + t * tiles.height * layout.n;
          write_tile<Rows>(layout, kernel, tiles[t], panel, p * kPanel, rows);
        }
      }
    };
    parallel_for(parallel, tasks, work);
  }
}

}  // namespace

Layout make_layout(int64_t k, int64_t n, int64_t block, int64_t bits) {
  constexpr int64_t kLargest = int64_t{1} << 31;
  if (k < 1 || n < 1 || k > kLargest || n > kLargest) {
    throw InvalidArgument("K and N must be between 1 and 2^31, got " + std::to_string(k) + " and " +
                          std::to_string(n));
  }
  if (block < 16 || block > static_cast<int64_t>(kMaxBlock) || (block & (block - 1)) != 0) {
    throw InvalidArgument("block_size must be 16, 32, 64, 128 or 256, got " +
                          std::to_string(block));
  }
  if (bits != 2 && bits != 4 && bits != 8) {
    throw InvalidArgument("bits must be 2, 4 or 8, got " + std::to_string(bits));
  }
  Layout layout{};
  layout.k = static_cast<size_t>(k);
  layout.n = static_cast<size_t>(n);
  layout.block = static_cast<size_t>(block);
  layout.bits = static_cast<int>(bits);
  layout.panels = ceil_div(layout.n, kPanel);
  layout.blocks = ceil_div(layout.k, layout.block);
  layout.padded_k = layout.blocks * layout.block;
  layout.panel_bytes = layout.padded_k * kPanel * static_cast<size_t>(bits) / 8;
  layout.panel_scales = layout.blocks * kPanel;
  return layout;
}

ScaleType parse_scale_type(const std::string& name) {
  if (name == "f32") return ScaleType::kFloat32;
  if (name == "f16") return ScaleType::kFloat16;
  if (name == "bf16") return ScaleType::kBFloat16;
  if (name == "ue4m3") return ScaleType::kUE4M3;
  throw InvalidArgument("scale_type must be f32, f16, bf16 or ue4m3, got '" + name + "'");
}

size_t scale_bytes(ScaleType type) {
  return type == ScaleType::kFloat32 ? 4 : type == ScaleType::kUE4M3 ? 1 : 2;
}

Compute parse_compute(const std::string& name) {
  if (name == "int8") return Compute::kInt8;
  if (name == "float32") return Compute::kFloat32;
  throw InvalidArgument("compute must be int8 or float32, got '" + name + "'");
}

void multiply(const Weights& weights, Compute compute, const Kernels& kernels,
              const Parallel& parallel, const float* a, size_t m, float* y) {
  if (m == 0) return;
  const Layout& layout = weights.layout;
  if (compute == Compute::kInt8) {
    const QuantizedTiles tiles(layout, kernels, parallel, a, m);
    const size_t bytes = layout.padded_k * kernels.max_rows;
    multiply_tiles<QuantizedRows>(weights, parallel, kernels.tile, tiles, bytes, y);
  } else {
    const FloatTiles tiles(layout, kernels, a, m);
    const size_t bytes = layout.padded_k * kernels.max_rows * sizeof(float);
    multiply_tiles<FloatRows>(weights, parallel, kernels.float_tile, tiles, bytes, y);
  }
}

}  // namespace lucid_fx::matmul
