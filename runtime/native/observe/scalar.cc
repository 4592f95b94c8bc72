// The definition of the observe kernels.
#include <cstring>
#include <limits>

#include "../unrolled.h"
#include "observe.h"

namespace lucid_fx::observe {
namespace {

#include "gram.inc"

}  // namespace

Extent extent_scalar(const float* x, size_t n) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  Extent e{inf, -inf, true};
  for (size_t i = 0; i < n; ++i) {
    e.finite &= x[i] - x[i] == 0.0f;  // inf - inf and nan - nan are nan
    e.min = x[i] < e.min ? x[i] : e.min;
    e.max = x[i] > e.max ? x[i] : e.max;
  }
  e.min += 0.0f;  // -0 + 0 is +0: which zero came first must not show
  e.max += 0.0f;
  return e;
}

void columns_scalar(const float* x, size_t rows, size_t width, float* min, float* max) {
  for (size_t r = 0; r < rows; ++r, x += width) {
    for (size_t c = 0; c < width; ++c) {
      min[c] = x[c] < min[c] ? x[c] : min[c];
      max[c] = x[c] > max[c] ? x[c] : max[c];
    }
  }
}

size_t bin_indices_scalar(const float* x, size_t n, const Binning& b, uint16_t* index) {
  size_t written = 0;
  for (size_t i = 0; i < n; ++i) {
    const int bin = static_cast<int>((static_cast<double>(x[i]) - b.lo) / b.step);
    index[written] = static_cast<uint16_t>(bin < b.bins ? bin : b.bins - 1);
    written += x[i] != 0.0f;
  }
  return written;
}

void from_half_scalar(const uint16_t* x, size_t n, float* y) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t sign = (x[i] & 0x8000u) << 16, exponent = (x[i] >> 10) & 31u;
    const uint32_t mantissa = x[i] & 0x3ffu;
    if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      y[i] = sign != 0 ? -magnitude : magnitude;
      continue;
    }
    const uint32_t biased = exponent == 31 ? 255u : exponent + (127u - 15u);
    const uint32_t bits = sign | biased << 23 | mantissa << 13;
    std::memcpy(&y[i], &bits, sizeof bits);
  }
}

void gram_scalar(const float* left, const float* right, size_t rows, float* sums) {
  gram_panels<2, 16>(left, right, rows, sums);
}

}  // namespace lucid_fx::observe
