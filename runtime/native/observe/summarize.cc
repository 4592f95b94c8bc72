#include <cmath>
#include <mutex>
#include <vector>

#include "blocks.h"

namespace lucid_fx::observe {
namespace {

// Shorter rows are not worth a call of `extent` each; they are reduced column by column instead.
constexpr size_t kShortRow = 16;

// A block that is known to hold a NaN or an infinity.
Summary summarize_nonfinite(const float* x, size_t n) {
  Summary s;
  for (size_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) {
      ++s.nan_count;
    } else if (std::isinf(x[i])) {
      ++s.inf_count;
    } else {
      s.min = std::min(s.min, x[i]);
      s.max = std::max(s.max, x[i]);
    }
  }
  s.min += 0.0f;  // as in `extent`: a zero is +0
  s.max += 0.0f;
  return s;
}

Summary summarize_block(const Kernels& kernels, const float* x, size_t n) {
  const Extent e = kernels.extent(x, n);
  if (!e.finite) return summarize_nonfinite(x, n);
  Summary s;
  s.min = e.min;
  s.max = e.max;
  return s;
}

void widen(float& min, float& max, float low, float high) {
  min = std::min(min, low);
  max = std::max(max, high);
}

// Each row of `inner` elements belongs to one channel: one `extent` per row.
Summary summarize_rows(const Machine& machine, const Tensor& x, const Layout& layout, float* min,
                       float* max) {
  const size_t rows = layout.outer * layout.channels;
  const size_t step = std::max<size_t>(1, kTask / layout.inner);
  Summary total;
  std::mutex merging;
  parallel_for(machine.parallel, divide_up(rows, step), [&](size_t task) {
    struct {
      float min, max;
    } found[kTask / kShortRow];  // not initialised: most tasks use a few of them
    Summary part;
    const size_t first = task * step, last = std::min(rows, first + step);
    for (size_t r = first; r < last; ++r) {
      Summary row;
      for_each_block(
          machine.kernels, x, r * layout.inner, (r + 1) * layout.inner,
          [&](const float* p, size_t n) { row.merge(summarize_block(machine.kernels, p, n)); });
      found[r - first] = {row.min, row.max};
      part.merge(row);
    }
    const std::lock_guard<std::mutex> lock(merging);
    size_t c = first % layout.channels;
    for (size_t r = first; r < last; ++r, c = c + 1 == layout.channels ? 0 : c + 1) {
      widen(min[c], max[c], found[r - first].min, found[r - first].max);
    }
    total.merge(part);
  });
  return total;
}

// Per-column ranges of [rows, width] cells. Thread-local: allocated once, hot in the cache.
struct Columns {
  std::vector<float> min, max;

  void reset(size_t width) {
    min.assign(width, __builtin_inff());
    max.assign(width, -__builtin_inff());
  }

  // A block that starts in column `at` and may run over the end of its row.
  Summary add(const Kernels& kernels, const float* x, size_t n, size_t at) {
    const size_t width = min.size();
    const Summary s = summarize_block(kernels, x, n);
    if (!s.all_finite()) {
      for (size_t i = 0; i < n; ++i, at = at + 1 == width ? 0 : at + 1) {
        if (std::isfinite(x[i])) widen(min[at], max[at], x[i], x[i]);
      }
      return s;
    }
    const size_t head = at == 0 ? 0 : std::min(n, width - at);
    if (head != 0) kernels.columns(x, 1, head, min.data() + at, max.data() + at);
    const size_t rows = (n - head) / width, done = head + rows * width;
    if (rows != 0) kernels.columns(x + head, rows, width, min.data(), max.data());
    if (done != n) kernels.columns(x + done, 1, n - done, min.data(), max.data());
    return s;
  }
};

// Channels are innermost or nearly so: reduce rows of channels * inner columns, then over inner.
Summary summarize_columns(const Machine& machine, const Tensor& x, const Layout& layout, float* min,
                          float* max) {
  const size_t width = layout.channels * layout.inner;
  const size_t step = std::max<size_t>(1, kTask / width);
  Summary total;
  std::mutex merging;
  parallel_for(machine.parallel, divide_up(layout.outer, step), [&](size_t task) {
    static thread_local Columns columns;
    columns.reset(width);
    Summary part;
    const size_t first = task * step * width;
    const size_t last = std::min(x.size, first + step * width);
    size_t at = 0;
    for_each_block(machine.kernels, x, first, last, [&](const float* p, size_t n) {
      part.merge(columns.add(machine.kernels, p, n, at));
      at = (at + n) % width;
    });
    const std::lock_guard<std::mutex> lock(merging);
    for (size_t i = 0; i < width; ++i) {
      const size_t c = i / layout.inner;
      widen(min[c], max[c], columns.min[i], columns.max[i]);
    }
    total.merge(part);
  });
  return total;
}

}  // namespace

void Summary::merge(const Summary& other) {
  widen(min, max, other.min, other.max);
  nan_count += other.nan_count;
  inf_count += other.inf_count;
}

Summary summarize(const Machine& machine, const Tensor& x) {
  Summary total;
  std::mutex merging;
  parallel_for(machine.parallel, divide_up(x.size, kTask), [&](size_t task) {
    Summary part;
    const size_t first = task * kTask, last = std::min(x.size, first + kTask);
    for_each_block(machine.kernels, x, first, last, [&](const float* p, size_t n) {
      part.merge(summarize_block(machine.kernels, p, n));
    });
    const std::lock_guard<std::mutex> lock(merging);
    total.merge(part);
  });
  return total;
}

Summary summarize_channels(const Machine& machine, const Tensor& x, const Layout& layout,
                           float* min, float* max) {
  std::fill_n(min, layout.channels, __builtin_inff());
  std::fill_n(max, layout.channels, -__builtin_inff());
  const Summary total = layout.inner < kShortRow ? summarize_columns(machine, x, layout, min, max)
                                                 : summarize_rows(machine, x, layout, min, max);
  for (size_t c = 0; c < layout.channels; ++c) {  // as in `extent`: a zero is +0
    min[c] += 0.0f;
    max[c] += 0.0f;
  }
  return total;
}

}  // namespace lucid_fx::observe
