// The range of every block, from the kernels of the observers.
#include <algorithm>
#include <atomic>

#include "../observe/observe.h"
#include "tensor.h"

namespace lucid_fx::block {
namespace {

constexpr size_t kTask = 1 << 16;  // elements of a task

size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

// A tensor seen as [outer, cut, inner, width]: `cut` is the first axis with several blocks, so that
// tasks that take different blocks of it write to different places. When that is the last axis,
// cut = 1 and the tasks take different columns.
struct Cut {
  size_t outer = 1, cut = 1, inner = 1, width = 1, extent = 1;
  bool by_columns = false;

  explicit Cut(const Blocks& b) {
    const size_t last = b.dims.size() - 1;
    size_t axis = 0;
    while (axis < last && b.extents[axis] >= b.dims[axis]) ++axis;
    by_columns = axis == last;
    for (size_t i = 0; i < axis; ++i) outer *= b.dims[i];
    for (size_t i = axis + 1; i < last; ++i) inner *= b.dims[i];
    width = b.dims[last];
    if (!by_columns) cut = b.dims[axis], extent = b.extents[axis];
  }
};

class Extremes {
 public:
  Extremes(const observe::Kernels& kernels, const Blocks& blocks, const float* x, float* min,
           float* max)
      : kernels_(kernels), blocks_(blocks), cut_(blocks), x_(x), min_(min), max_(max) {}

  bool run(const Parallel& parallel) {
    size_t count = 1;
    for (size_t i = 0; i < blocks_.dims.size(); ++i) {
      count *= ceil_div(blocks_.dims[i], blocks_.extents[i]);
    }
    std::fill(min_, min_ + count, __builtin_inff());
    std::fill(max_, max_ + count, -__builtin_inff());
    const size_t last = blocks_.extents.back();
    if (cut_.by_columns) {
      const size_t rows = cut_.outer * cut_.inner;
      const size_t step = std::max<size_t>(kTask / rows / last, 1) * last;
      parallel_for(parallel, ceil_div(cut_.width, step), [&](size_t task) {
        const size_t left = task * step, right = std::min(left + step, cut_.width);
        for (size_t row = 0; row < rows; ++row) take(row, left, right);
      });
    } else {
      const size_t across = cut_.outer * cut_.inner * cut_.width * cut_.extent;
      const size_t step = std::max<size_t>(kTask / std::max<size_t>(across, 1), 1) * cut_.extent;
      parallel_for(parallel, ceil_div(cut_.cut, step), [&](size_t task) {
        const size_t first = task * step, stop = std::min(first + step, cut_.cut);
        for (size_t o = 0; o < cut_.outer; ++o) {
          const size_t begin = (o * cut_.cut + first) * cut_.inner;
          const size_t end = (o * cut_.cut + stop) * cut_.inner;
          for (size_t row = begin; row < end; ++row) take(row, 0, cut_.width);
        }
      });
    }
    return finite_;
  }

 private:
  // Merges the elements [left, right) of a row, whole blocks, into the extremes.
  void take(size_t row, size_t left, size_t right) {
    const size_t extent = blocks_.extents.back(), grid = offset(row);
    const float* x = x_ + row * cut_.width;
    if (extent == 1) {
      if (!kernels_.extent(x + left, right - left).finite) finite_ = false;
      kernels_.columns(x + left, 1, right - left, min_ + grid + left, max_ + grid + left);
      for (size_t at = grid + left; at < grid + right; ++at) min_[at] += 0.0f, max_[at] += 0.0f;
      return;
    }
    bool finite = true;
    for (size_t at = left; at < right; at += extent) {
      const observe::Extent e = kernels_.extent(x + at, std::min(extent, right - at));
      float& min = min_[grid + at / extent];
      float& max = max_[grid + at / extent];
      min = std::min(min, e.min);
      max = std::max(max, e.max);
      finite &= e.finite;
    }
    if (!finite) finite_ = false;
  }

  // Where the blocks of a row begin in the grid.
  size_t offset(size_t row) const {
    const size_t last = blocks_.dims.size() - 1;
    size_t stride = ceil_div(blocks_.dims[last], blocks_.extents[last]), result = 0;
    for (size_t i = last; i-- > 0;) {
      result += row % blocks_.dims[i] / blocks_.extents[i] * stride;
      row /= blocks_.dims[i];
      stride *= ceil_div(blocks_.dims[i], blocks_.extents[i]);
    }
    return result;
  }

  const observe::Kernels& kernels_;
  const Blocks& blocks_;
  const Cut cut_;
  const float* x_;
  float* min_;
  float* max_;
  std::atomic<bool> finite_{true};
};

}  // namespace

bool extremes(const Parallel& parallel, const char* isa, const Blocks& blocks, const float* x,
              float* min, float* max) {
  const observe::Kernels* kernels = observe::find_kernels(isa);
  if (kernels == nullptr) return false;
  const bool one_block = std::equal(blocks.dims.begin(), blocks.dims.end(), blocks.extents.begin(),
                                    [](size_t size, size_t extent) { return extent >= size; });
  size_t size = 1;
  for (const size_t dim : blocks.dims) size *= dim;
  if (!one_block || size == 0) return Extremes(*kernels, blocks, x, min, max).run(parallel);
  std::vector<float> low(ceil_div(size, kTask)), high(low.size());
  std::atomic<bool> finite{true};
  parallel_for(parallel, low.size(), [&](size_t row) {
    const size_t begin = row * kTask, n = std::min(kTask, size - begin);
    const observe::Extent e = kernels->extent(x + begin, n);
    low[row] = e.min;
    high[row] = e.max;
    if (!e.finite) finite = false;
  });
  *min = *std::min_element(low.begin(), low.end());
  *max = *std::max_element(high.begin(), high.end());
  return finite;
}

}  // namespace lucid_fx::block
