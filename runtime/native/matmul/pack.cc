#include "pack.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace lucid_fx::matmul {
namespace {

// Where the code of a row lies in its panel: in a field of byte `byte + 4 * column`.
struct Place {
  size_t byte, shift;
};

Place place(const Layout& layout, size_t row) {
  const size_t bits = static_cast<size_t>(layout.bits), group = 32 / bits, inside = row % group;
  return {row / group * 64 + inside % 4, inside / 4 * bits};
}

size_t columns(const Layout& layout, size_t panel) {
  return std::min(kPanel, layout.n - panel * kPanel);
}

// One block of one panel in row-major order. Rows past K and columns past N are not written.
struct Tile {
  size_t rows, width;
  float values[kMaxBlock][kPanel];
};

void read_tile(const Layout& layout, const RealWeights& weights, size_t panel, size_t block,
               Tile& tile) {
  const size_t first = block * layout.block;
  tile.rows = std::min(layout.block, layout.k - first);
  tile.width = columns(layout, panel);
  const float* from =
      weights.values + first * weights.row_stride + panel * kPanel * weights.column_stride;
  if (weights.column_stride == 1) {
    for (size_t r = 0; r < tile.rows; ++r) {
      std::memcpy(tile.values[r], from + r * weights.row_stride, tile.width * sizeof(float));
    }
    return;
  }
  for (size_t c = 0; c < tile.width; ++c) {
    const float* column = from + c * weights.column_stride;
    for (size_t r = 0; r < tile.rows; ++r) tile.values[r][c] = column[r * weights.row_stride];
  }
}

// Calls visit(panel, block) for all, block by block of some neighbouring panels: a row of those is
// long enough for the machine to read ahead, and the rows of a block few enough for its page
// tables.
template <class Visit>
void for_tiles(const Layout& layout, const Parallel& parallel, const Visit& visit) {
  constexpr size_t kNeighbours = 16;
  parallel_for(parallel, (layout.panels + kNeighbours - 1) / kNeighbours, [&](size_t task) {
    const size_t last = std::min(layout.panels, (task + 1) * kNeighbours);
    for (size_t b = 0; b < layout.blocks; ++b) {
      for (size_t p = task * kNeighbours; p < last; ++p) visit(p, b);
    }
  });
}

}  // namespace

void pack(const Layout& layout, const Parallel& parallel, const uint8_t* codes, uint8_t* packed) {
  parallel_for(parallel, layout.panels, [&](size_t p) {
    uint8_t* panel = packed + p * layout.panel_bytes;
    std::fill_n(panel, layout.panel_bytes, uint8_t{0});
    const size_t width = columns(layout, p);
    for (size_t row = 0; row < layout.k; ++row) {
      const Place to = place(layout, row);
      const uint8_t* from = codes + row * layout.n + p * kPanel;
      for (size_t c = 0; c < width; ++c) {
        panel[to.byte + 4 * c] |= static_cast<uint8_t>(from[c] << to.shift);
      }
    }
  });
}

void unpack(const Layout& layout, const Parallel& parallel, const uint8_t* packed, uint8_t* codes) {
  const auto mask = static_cast<uint8_t>((1 << layout.bits) - 1);
  parallel_for(parallel, layout.panels, [&](size_t p) {
    const uint8_t* panel = packed + p * layout.panel_bytes;
    const size_t width = columns(layout, p);
    for (size_t row = 0; row < layout.k; ++row) {
      const Place from = place(layout, row);
      uint8_t* to = codes + row * layout.n + p * kPanel;
      for (size_t c = 0; c < width; ++c) to[c] = panel[from.byte + 4 * c] >> from.shift & mask;
    }
  });
}

bool extremes(const Layout& layout, const Parallel& parallel, const RealWeights& weights,
              float* least, float* greatest) {
  std::atomic<bool> finite{true};
  for_tiles(layout, parallel, [&](size_t p, size_t b) {
    Tile tile;
    read_tile(layout, weights, p, b, tile);
    float low[kPanel], high[kPanel], ruined[kPanel] = {};
    std::copy_n(tile.values[0], kPanel, low);
    std::copy_n(tile.values[0], kPanel, high);
    for (size_t r = 0; r < tile.rows; ++r) {
      for (size_t c = 0; c < kPanel; ++c) {
        const float x = tile.values[r][c];
        low[c] = x < low[c] ? x : low[c];
        high[c] = x > high[c] ? x : high[c];
        ruined[c] += x - x;  // NaN for an infinity and for a NaN
      }
    }
    for (size_t c = 0; c < tile.width; ++c) {
      if (ruined[c] != 0.0f) finite = false;
    }
    std::copy_n(low, tile.width, least + b * layout.n + p * kPanel);
    std::copy_n(high, tile.width, greatest + b * layout.n + p * kPanel);
  });
  return finite;
}

void encode(const Layout& layout, const Parallel& parallel, const RealWeights& weights,
            const float* scales, const uint8_t* zeros, int low, uint8_t* codes) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves the integer in the low bits
  constexpr int32_t kMagicBits = 0x4b400000;
  constexpr float kFar = 1024.0f;  // further than any code
  const int32_t high = (1 << layout.bits) - 1;
  for_tiles(layout, parallel, [&](size_t p, size_t b) {
    Tile tile;
    read_tile(layout, weights, p, b, tile);
    float scale[kPanel];
    int32_t zero[kPanel];
    std::fill_n(scale, kPanel, 1.0f);
    std::fill_n(zero, kPanel, 1 << (layout.bits - 1));
    std::copy_n(scales + b * layout.n + p * kPanel, tile.width, scale);
    if (zeros != nullptr) std::copy_n(zeros + b * layout.n + p * kPanel, tile.width, zero);
    for (size_t r = 0; r < tile.rows; ++r) {
      uint8_t* to = codes + (b * layout.block + r) * layout.n + p * kPanel;
      uint8_t code[kPanel];
      for (size_t c = 0; c < kPanel; ++c) {
        float quotient = tile.values[r][c] / scale[c];
        quotient = quotient > kFar ? kFar : quotient;
        quotient = quotient < -kFar ? -kFar : quotient;
        const float moved = quotient + kMagic;
        int32_t rounded;
        std::memcpy(&rounded, &moved, sizeof rounded);
        rounded += zero[c] - kMagicBits;
        rounded = rounded < low ? low : rounded;
        code[c] = static_cast<uint8_t>(rounded > high ? high : rounded);
      }
      std::memcpy(to, code, tile.width);
    }
  });
}

}  // namespace lucid_fx::matmul
