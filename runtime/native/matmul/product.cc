#include "product.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "../invalid_argument.h"

namespace lucid_fx::matmul {
namespace {

// What is used again is kept close to the core. Of a stretch of K, a tile of A and a panel of W
// fill the first-level cache; so many panels and so many bytes of A share the second.
constexpr size_t kStretch = 4096;
constexpr size_t kGroupPanels = 4;
constexpr size_t kGroupBytes = 512 * 1024;
// Work is cut into at most so many ranges of panels, whatever the number of threads.
constexpr size_t kTasks = 64;
constexpr size_t kSmallestTask = 16 * 1024;  // bytes of codes

template <class T>
std::unique_ptr<T[]> uninitialized(size_t n) {
  return std::unique_ptr<T[]>(new T[n]);
}

size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

size_t block_bytes(const Layout& layout) {  // of codes, in a panel
  return layout.block * kPanel * static_cast<size_t>(layout.bits) / 8;
}

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
      kernels.quantize_rows(layout, {a + first * layout.k, layout.k, rows(t)}, at(t, 0));
    };
    parallel_for(parallel, ceil_div(m, height), quantize);
  }

  size_t rows(size_t t) const { return std::min(height, m - t * height); }
  // Tile t from a block on.
  QuantizedRows at(size_t t, size_t block) const {
    const size_t n = rows(t), first = t * height;
    const size_t skip = first * layout.blocks + block * n;
    return {codes.get() + first * layout.padded_k + block * layout.block * n, scales.get() + skip,
            starts.get() + skip, n};
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
      : m(m), height(kernels.max_rows), stride(layout.padded_k), block(layout.block), values(a) {
    if (layout.padded_k == layout.k) return;
    padded = uninitialized<float>(m * stride);
    for (size_t r = 0; r < m; ++r) {
      float* row = padded.get() + r * stride;
      std::copy_n(a + r * layout.k, layout.k, row);
      std::fill(row + layout.k, row + stride, 0.0f);
    }
    values = padded.get();
  }

  FloatRows at(size_t t, size_t first) const {
    const float* from = values + t * height * stride + first * block;
    return {from, stride, std::min(height, m - t * height)};
  }

  const size_t m, height, stride, block;
  const float* values;
  std::unique_ptr<float[]> padded;
};

// Panel p, `count` blocks of it from `first` on.
Panel read_panel(const Weights& weights, size_t p, size_t first, size_t count) {
  const Layout& layout = weights.layout;
  const size_t at = p * layout.panel_scales + first * kPanel;
  const auto* scales = static_cast<const uint8_t*>(weights.scales);
  return {count,
          weights.codes + p * layout.panel_bytes + first * block_bytes(layout),
          scales + at * scale_bytes(weights.scale_type),
          weights.scale_type,
          scale_bytes(weights.scale_type),
          weights.global,
          weights.zeros == nullptr ? nullptr : weights.zeros + at,
          nullptr,
          0};
}

// The bias of panel p, 16 numbers, which the file has only N of.
void read_bias(const Weights& weights, size_t p, float* bias) {
  std::fill_n(bias, kPanel, 0.0f);
  if (weights.bias == nullptr) return;
  std::copy_n(weights.bias + p * kPanel, std::min(kPanel, weights.layout.n - p * kPanel), bias);
}

// What the panels of a group ask for ahead of its use. One tile alone asks for what it needs itself
// a little later; several share what comes after them, so that it arrives evenly.
struct Ahead {
  Ahead(const Layout& layout, size_t first_block, size_t blocks, size_t tiles) {
    const bool ends = first_block + blocks == layout.blocks;
    const size_t bytes = blocks * block_bytes(layout);
    while (size_t{1} << shift < tiles) ++shift;
    share = bytes >> shift;
    next = tiles == 1 ? kDistance
           : ends     ? kGroupPanels * layout.panel_bytes - first_block * block_bytes(layout)
                      : bytes;
  }

  static constexpr size_t kDistance = 16384;
  size_t next;   // bytes from the codes of a panel
  size_t share;  // bytes of a tile
  int shift = 0;
};

// How many panels a task takes, in whole groups.
size_t task_panels(const Layout& layout, size_t group) {
  const size_t smallest = ceil_div(kSmallestTask, std::max<size_t>(1, layout.panel_bytes));
  return ceil_div(std::max(ceil_div(layout.panels, kTasks), smallest), group) * group;
}

template <class Rows>
using TileKernel = void (*)(const Layout&, const Rows&, const Panel&, const Target&);

// One tile times a panel of `columns`, of which the last may have fewer than the kernel writes.
template <class Rows>
void write_tile(const Layout& layout, TileKernel<Rows> kernel, const Rows& rows, const Panel& panel,
                size_t columns, const Target& to) {
  if (columns == kPanel) return kernel(layout, rows, panel, to);
  float whole[kMaxRows * kPanel];
  Target inside{whole, kPanel, to.start, to.start_stride};
  if (to.start == to.y) {
    for (size_t r = 0; r < rows.rows; ++r) {
      std::copy_n(to.y + r * to.stride, columns, whole + r * kPanel);
      std::fill_n(whole + r * kPanel + columns, kPanel - columns, 0.0f);
    }
    inside.start = whole, inside.start_stride = kPanel;
  }
  kernel(layout, rows, panel, inside);
  for (size_t r = 0; r < rows.rows; ++r) {
    std::copy_n(whole + r * kPanel, columns, to.y + r * to.stride);
  }
}

// Panels [p, end), at most kGroupPanels, times tiles [first, last): one stretch after the other.
template <class Rows, class Tiles>
void multiply_group(const Weights& weights, TileKernel<Rows> kernel, const Tiles& tiles,
                    size_t stretch, size_t p, size_t end, size_t first, size_t last, float* y) {
  const Layout& layout = weights.layout;
  float bias[kGroupPanels][kPanel];
  Panel panels[kGroupPanels];
  for (size_t i = p; i < end; ++i) read_bias(weights, i, bias[i - p]);
  for (size_t b = 0; b < layout.blocks; b += stretch) {
    const size_t blocks = std::min(stretch, layout.blocks - b);
    const Ahead ahead(layout, b, blocks, last - first);
    for (size_t i = p; i < end; ++i) {
      panels[i - p] = read_panel(weights, i, b, blocks);
      panels[i - p].ahead = panels[i - p].codes + ahead.next;
      panels[i - p].ahead_shift = ahead.shift;
    }
    for (size_t t = first; t < last; ++t) {
      const Rows rows = tiles.at(t, b);
      for (size_t i = p; i < end; ++i) {
        float* to = y + t * tiles.height * layout.n + i * kPanel;
        const Target target =
            b == 0 ? Target{to, layout.n, bias[i - p], 0} : Target{to, layout.n, to, layout.n};
        const size_t columns = std::min(kPanel, layout.n - i * kPanel);
        write_tile<Rows>(layout, kernel, rows, panels[i - p], columns, target);
        panels[i - p].ahead += ahead.share;
      }
    }
  }
}

// `row_bytes` is what a row of A takes per row of W.
template <class Rows, class Tiles>
void multiply_tiles(const Weights& weights, const Parallel& parallel, TileKernel<Rows> kernel,
                    const Tiles& tiles, size_t row_bytes, float* y) {
  const Layout& layout = weights.layout;
  const size_t count = ceil_div(tiles.m, tiles.height);
  // one tile alone takes its panels one by one, as they lie in memory
  const size_t most = count == 1 ? layout.blocks : std::max<size_t>(1, kStretch / layout.block);
  const size_t stretch = ceil_div(layout.blocks, ceil_div(layout.blocks, most));
  const size_t group =
      std::max<size_t>(1, kGroupBytes / (stretch * layout.block * tiles.height * row_bytes));
  const size_t share = task_panels(layout, count == 1 ? 1 : kGroupPanels);

  for (size_t first = 0; first < count; first += group) {
    const auto work = [&](size_t i) {
      const size_t end = std::min(layout.panels, (i + 1) * share);
      for (size_t p = i * share; p < end; p += kGroupPanels) {
        multiply_group<Rows>(weights, kernel, tiles, stretch, p, std::min(end, p + kGroupPanels),
                             first, std::min(count, first + group), y);
      }
    };
    parallel_for(parallel, ceil_div(layout.panels, share), work);
  }
}

// One row: whole panels side by side, what is left at the end of W one by one.
void multiply_row(const Weights& weights, const Kernels& kernels, const Parallel& parallel,
                  const QuantizedTiles& tiles, float* y) {
  const Layout& layout = weights.layout;
  const QuantizedRows row = tiles.at(0, 0);
  const size_t share = task_panels(layout, kSide);
  const auto work = [&](size_t i) {
    const size_t end = std::min(layout.panels, (i + 1) * share);
    for (size_t p = i * share; p < end; p += kSide) {
      if ((p + kSide) * kPanel > layout.n) {
        multiply_group<QuantizedRows>(weights, kernels.tile, tiles, layout.blocks, p, end, 0, 1, y);
        continue;
      }
      float bias[kSide][kPanel];
      for (size_t s = 0; s < kSide; ++s) read_bias(weights, p + s, bias[s]);
      const Panel panel = read_panel(weights, p, 0, layout.blocks);
      kernels.row(layout, row, panel, {y + p * kPanel, layout.n, bias[0], 0});
    }
  };
  parallel_for(parallel, ceil_div(layout.panels, share), work);
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
  layout.panel_bytes = layout.blocks * block_bytes(layout);
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
    if (m == 1 && kernels.row != nullptr) {
      return multiply_row(weights, kernels, parallel, tiles, y);
    }
    multiply_tiles<QuantizedRows>(weights, parallel, kernels.tile, tiles, sizeof(int8_t), y);
  } else {
    const FloatTiles tiles(layout, kernels, a, m);
    multiply_tiles<FloatRows>(weights, parallel, kernels.float_tile, tiles, sizeof(float), y);
  }
}

}  // namespace lucid_fx::matmul
