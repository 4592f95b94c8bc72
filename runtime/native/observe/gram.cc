#include <algorithm>
#include <memory>

#include "blocks.h"

namespace lucid_fx::observe {
namespace {

// Rows that are summed in float32 before they go to the float64 matrix.
constexpr size_t kChunk = 64;

// Some rows of x in panels of 16 columns, [panel][row][16]. What is not finite counts as zero.
void fill_panels(const Machine& machine, const Tensor& x, size_t first, size_t rows, size_t columns,
                 float* panels) {
  size_t r = 0, c = 0;
  const auto put = [&](const float* from, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const bool finite = from[i] - from[i] == 0.0f;
      panels[(c / kGramLanes * rows + r) * kGramLanes + c % kGramLanes] = finite ? from[i] : 0.0f;
      if (++c == columns) c = 0, ++r;
    }
  };
  for_each_block(machine.kernels, x, first * columns, (first + rows) * columns, put);
}

}  // namespace

void add_gram(const Machine& machine, const Tensor& x, size_t columns, double* gram) {
  const size_t all_rows = x.size / columns, panels = divide_up(columns, kGramLanes);
  const auto chunk = std::make_unique<float[]>(panels * kGramLanes * kChunk);
  for (size_t first = 0; first < all_rows; first += kChunk) {
    const size_t rows = std::min(kChunk, all_rows - first);
    fill_panels(machine, x, first, rows, columns, chunk.get());
    const auto panel = [&](size_t p) { return chunk.get() + p * rows * kGramLanes; };
    parallel_for(machine.parallel, panels, [&](size_t i) {
      float sums[kGramLanes * kGramLanes];
      const size_t height = std::min(kGramLanes, columns - i * kGramLanes);
      for (size_t j = i; j < panels; ++j) {
        machine.kernels.gram(panel(i), panel(j), rows, sums);
        const size_t width = std::min(kGramLanes, columns - j * kGramLanes);
        for (size_t a = 0; a < height; ++a) {
          double* to = gram + (i * kGramLanes + a) * columns + j * kGramLanes;
          for (size_t b = 0; b < width; ++b) to[b] += double{sums[a * kGramLanes + b]};
        }
      }
    });
  }
}

}  // namespace lucid_fx::observe
