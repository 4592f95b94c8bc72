// From real weights or plain codes to the packed layout of matmul.h, and back.
#pragma once

#include "product.h"

namespace lucid_fx::matmul {

// Real weights: W[row][column] = values[row * row_stride + column * column_stride].
struct RealWeights {
  const float* values;
  size_t row_stride, column_stride;
};

// codes[row * n + column], each below 2^bits, to layout.panels * layout.panel_bytes bytes.
void pack(const Layout& layout, const Parallel& parallel, const uint8_t* codes, uint8_t* packed);
void unpack(const Layout& layout, const Parallel& parallel, const uint8_t* packed, uint8_t* codes);

// The least and the greatest weight under each scale, at [block * n + column]. False when a weight
// is NaN or infinite.
bool extremes(const Layout& layout, const Parallel& parallel, const RealWeights& weights,
              float* least, float* greatest);

// Codes clamp(rint(w / scale) + zero, low, 2^bits - 1), in float32, ties to even, at
// [row * n + column]. `scales` and `zeros` lie as the extremes do; zeros = null stands for
// 2^(bits - 1).
void encode(const Layout& layout, const Parallel& parallel, const RealWeights& weights,
            const float* scales, const uint8_t* zeros, int low, uint8_t* codes);

}  // namespace lucid_fx::matmul
