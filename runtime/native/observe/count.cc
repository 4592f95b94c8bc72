// Counting into histogram bins.
//
// The counter increments, one read-modify-write per element, are the bottleneck. Zeros are left out
// of it. When other neighbours fall in one bin (a saturated softmax) each has to wait for the store
// before it: four counter tables used in turn hide that wait for any data. Counters of 16 bits keep
// the four in the first-level cache; a task is too small to overflow one.
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "blocks.h"

namespace lucid_fx::observe {
namespace {

constexpr size_t kTables = 4;
static_assert(kTask / kTables + 3 * kTask / kBlock < 65536, "a 16-bit counter holds one task");

class Tables {
 public:
  void reset(size_t bins) {
    bins_ = bins;
    stride_ = bins + 32;  // tables a multiple of 4 KiB apart would fight for the same cache sets
    counts_.assign(kTables * stride_, 0);
  }

  // Four indices are read at once: loads are as scarce as stores here.
  void add(const uint16_t* index, size_t n) {
    uint16_t* const a = counts_.data();
    uint16_t* const b = a + stride_;
    uint16_t* const c = b + stride_;
    uint16_t* const d = c + stride_;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
      uint64_t four;
      std::memcpy(&four, index + i, sizeof four);
      ++a[four & 0xffff];
      ++b[four >> 16 & 0xffff];
      ++c[four >> 32 & 0xffff];
      ++d[four >> 48];
    }
    for (; i < n; ++i) ++a[index[i]];
  }

  void drain(int64_t* into) const {
    const uint16_t* const a = counts_.data();
    const uint16_t* const b = a + stride_;
    const uint16_t* const c = b + stride_;
    const uint16_t* const d = c + stride_;
    const size_t bins = bins_;  // a local: `into` might alias a member
    for (size_t i = 0; i < bins; ++i) {
      const uint32_t sum = uint32_t{a[i]} + b[i] + c[i] + d[i];
      into[i] += sum;
    }
  }

 private:
  std::vector<uint16_t> counts_;
  size_t bins_ = 0, stride_ = 0;
};

// Moves the finite elements of x, which has at most kBlock, to y.
size_t keep_finite(const float* x, size_t n, float* y) {
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(x[i])) y[kept++] = x[i];
  }
  return kept;
}

// Calls body(const uint16_t* index, size_t n, size_t zeros) for blocks of the elements [begin,
// end): the bins of n finite elements, and how many zeros were left out of them.
template <class Body>
void for_each_index(const Kernels& kernels, const Tensor& x, size_t begin, size_t end,
                    const Binning& binning, bool all_finite, Body&& body) {
  alignas(64) uint16_t index[kBlock];
  alignas(64) float finite[kBlock];
  for_each_block(kernels, x, begin, end, [&](const float* p, size_t length) {
    for (size_t i = 0; i < length; i += kBlock) {
      const float* values = p + i;
      size_t n = std::min(kBlock, length - i);
      if (!all_finite) {
        n = keep_finite(values, n, finite);
        values = finite;
      }
      const size_t written = kernels.bin_indices(values, n, binning, index);
      body(index, written, n - written);
    }
  });
}

// Straight into the histogram: for few elements, tables would cost more than the waits.
size_t count_directly(const Kernels& kernels, const Tensor& x, const Binning& binning,
                      bool all_finite, int64_t* counts) {
  size_t zeros = 0;
  for_each_index(kernels, x, 0, x.size, binning, all_finite,
                 [&](const uint16_t* index, size_t n, size_t left_out) {
                   for (size_t i = 0; i < n; ++i) ++counts[index[i]];
                   zeros += left_out;
                 });
  return zeros;
}

size_t count_in_tables(const Machine& machine, const Tensor& x, const Binning& binning,
                       bool all_finite, int64_t* counts) {
  size_t zeros = 0;
  std::mutex merging;
  parallel_for(machine.parallel, divide_up(x.size, kTask), [&](size_t task) {
    static thread_local Tables tables;
    tables.reset(static_cast<size_t>(binning.bins));
    size_t task_zeros = 0;
    const size_t first = task * kTask, last = std::min(x.size, first + kTask);
    for_each_index(machine.kernels, x, first, last, binning, all_finite,
                   [&](const uint16_t* index, size_t n, size_t left_out) {
                     tables.add(index, n);
                     task_zeros += left_out;
                   });
    const std::lock_guard<std::mutex> lock(merging);
    tables.drain(counts);
    zeros += task_zeros;
  });
  return zeros;
}

}  // namespace

void count(const Machine& machine, const Tensor& x, const Binning& binning, bool all_finite,
           int64_t* counts) {
  const bool few = x.size < static_cast<size_t>(binning.bins) / 2;
  const size_t zeros = few ? count_directly(machine.kernels, x, binning, all_finite, counts)
                           : count_in_tables(machine, x, binning, all_finite, counts);
  if (zeros == 0) return;  // and zero need not lie in the binned range
  const int bin = static_cast<int>((0.0 - binning.lo) / binning.step);
  counts[std::min(bin, binning.bins - 1)] += static_cast<int64_t>(zeros);
}

}  // namespace lucid_fx::observe
