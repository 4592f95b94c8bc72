// Counting into histogram bins.
//
// The counter increments, one read-modify-write per element, are the bottleneck. Zeros are left out
// of it. When other neighbours fall in one bin (a saturated softmax) each has to wait for the store
// before it: four counter tables used in turn hide that wait for any data. Counters of 16 bits keep
// the four in the first-level cache, and are added up when one might overflow.
#include <cmath>
#include <cstring>
#include <mutex>

#include "blocks.h"

namespace lucid_fx::observe {
namespace {

constexpr size_t kMostThreads = 4;
constexpr size_t kMostInCounter = 65535;

// Elements binned at a time: few enough that the processor bins the next while it counts these.
constexpr size_t kBinned = 256;

// At most so many of n elements, added block by block, are in one counter.
constexpr size_t most_in_counter(size_t n) { return n / kTables + kTables * (n / kBinned + 1); }
static_assert(most_in_counter(kTask) <= kMostInCounter);

// Moves the finite elements of x, which has at most kBinned, to y.
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
  alignas(64) uint16_t index[kBinned];
  alignas(64) float finite[kBinned];
  for_each_block(kernels, x, begin, end, [&](const float* p, size_t length) {
    for (size_t i = 0; i < length; i += kBinned) {
      const float* values = p + i;
      size_t n = std::min(kBinned, length - i);
      if (!all_finite) {
        n = keep_finite(values, n, finite);
        values = finite;
      }
      const size_t written = kernels.bin_indices(values, n, binning, index);
      body(index, written, n - written);
    }
  });
}

// The bin of zero, which need not lie in the binned range unless there is one.
size_t zero_bin(const Binning& binning) {
  const int bin = static_cast<int>((0.0 - binning.lo) / binning.step);
  return static_cast<size_t>(std::min(bin, binning.bins - 1));
}

void count_task(const Kernels& kernels, const Tensor& x, size_t begin, size_t end,
                const Binning& binning, bool all_finite, Tables& tables) {
  size_t zeros = 0;
  for_each_index(kernels, x, begin, end, binning, all_finite,
                 [&](const uint16_t* index, size_t n, size_t left_out) {
                   tables.add(index, n);
                   zeros += left_out;
                 });
  if (zeros != 0) tables.add_zeros(zero_bin(binning), zeros);
}

}  // namespace

void Tables::resize(size_t bins) {
  if (bins == bins_) return;
  bins_ = bins;
  stride_ = bins + 32;  // tables a multiple of 4 KiB apart would fight for the same cache sets
  counts_.assign(kTables * stride_, 0);
}

bool Tables::has_room(size_t n) const { return most_ + most_in_counter(n) <= kMostInCounter; }

// Four indices are read at once: loads are as scarce as stores here.
void Tables::add(const uint16_t* index, size_t n) {
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
  most_ += most_in_counter(n);
}

void Tables::add_zeros(size_t bin, size_t n) {
  zero_bin_ = bin;
  zeros_ += n;
}

void Tables::drain(int64_t* into) {
  if (zeros_ != 0) into[zero_bin_] += static_cast<int64_t>(zeros_);
  zeros_ = 0;
  if (most_ == 0) return;
  const uint16_t* const a = counts_.data();
  const uint16_t* const b = a + stride_;
  const uint16_t* const c = b + stride_;
  const uint16_t* const d = c + stride_;
  const size_t bins = bins_;  // a local: `into` might alias a member
  for (size_t i = 0; i < bins; ++i) {
    const uint32_t sum = uint32_t{a[i]} + b[i] + c[i] + d[i];
    into[i] += sum;
  }
  std::fill(counts_.begin(), counts_.end(), uint16_t{0});
  most_ = 0;
}

Tables& PendingCounts::of_this_thread(int64_t* counts) {
  const std::thread::id me = std::this_thread::get_id();
  for (Slot& slot : slots_) {
    if (slot.owner == me) return slot.tables;
  }
  if (slots_.size() < kMostThreads) return slots_.emplace_back(Slot{me, {}}).tables;
  Slot& slot = slots_[next_++ % kMostThreads];
  slot.tables.drain(counts);
  slot.owner = me;
  return slot.tables;
}

void PendingCounts::drain(int64_t* counts) {
  for (Slot& slot : slots_) slot.tables.drain(counts);
}

void count(const Machine& machine, const Tensor& x, const Binning& binning, bool all_finite,
           Tables& pending, int64_t* counts) {
  const size_t bins = static_cast<size_t>(binning.bins);
  if (x.size <= kTask) {
    pending.resize(bins);
    if (!pending.has_room(x.size)) pending.drain(counts);
    return count_task(machine.kernels, x, 0, x.size, binning, all_finite, pending);
  }
  std::mutex merging;
  parallel_for(machine.parallel, divide_up(x.size, kTask), [&](size_t task) {
    static thread_local Tables tables;
    tables.resize(bins);
    const size_t first = task * kTask, last = std::min(x.size, first + kTask);
    count_task(machine.kernels, x, first, last, binning, all_finite, tables);
    const std::lock_guard<std::mutex> lock(merging);
    tables.drain(counts);
  });
}

}  // namespace lucid_fx::observe
