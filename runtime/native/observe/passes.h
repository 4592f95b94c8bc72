// Passes over one whole tensor: blocks, threads and other element types around the kernels.
//
// A tensor is cut into tasks of a fixed size, never by the number of threads, and the partial
// results are minima, maxima and integer counts, so that any schedule gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "../parallel.h"
#include "observe.h"

namespace lucid_fx::observe {

constexpr size_t kTables = 4;
constexpr size_t kCacheLine = 64;

enum class ElementType { kFloat32, kFloat16, kFloat64 };

// A dense row-major tensor. Elements that are not float32 are rounded to it when they are read.
struct Tensor {
  const void* data;
  ElementType type;
  const int64_t* dims;
  size_t rank;
  size_t size;
};

struct Machine {
  const Kernels& kernels;
  const Parallel& parallel;
};

// What one tensor holds: the range of its finite elements, and how many are not finite.
struct Summary {
  float min = __builtin_inff();
  float max = -__builtin_inff();
  int64_t nan_count = 0;
  int64_t inf_count = 0;

  bool all_finite() const { return nan_count == 0 && inf_count == 0; }
  bool any_finite() const { return min <= max; }
  void merge(const Summary& other);
};

// The tensor seen as [outer, channels, inner], channels being the observed axis.
struct Layout {
  size_t outer, channels, inner;
};

Summary summarize(const Machine& machine, const Tensor& x);

// The same, and the range per channel into min and max (`channels` floats each). A channel without
// a finite element gets (+inf, -inf).
Summary summarize_channels(const Machine& machine, const Tensor& x, const Layout& layout,
                           float* min, float* max);

// Counts of elements that are not in a histogram yet: adding them up after each small tensor would
// cost as much as counting it.
class Tables {
 public:
  void resize(size_t bins);  // they are empty where that changes it
  bool has_room(size_t n) const;
  void add(const uint16_t* index, size_t n);
  void add_zeros(size_t bin, size_t n);
  void drain(int64_t* into);  // [bins]

 private:
  std::vector<uint16_t> counts_;  // [kTables][stride_]
  size_t bins_ = 0, stride_ = 0;
  size_t most_ = 0;  // no counter is above
  size_t zeros_ = 0, zero_bin_ = 0;
};

// Tables for each of the threads that count in turn: those of one would move from core to core.
class PendingCounts {
 public:
  Tables& of_this_thread(int64_t* counts);  // a thread too many takes another's, once drained
  void drain(int64_t* counts);

 private:
  struct alignas(kCacheLine) Slot {
    std::thread::id owner;
    Tables tables;
  };
  std::vector<Slot> slots_;
  size_t next_ = 0;  // to be taken over
};

// Adds the finite elements of x, all of which must lie in the binned range, to `pending` and
// `counts` together.
void count(const Machine& machine, const Tensor& x, const Binning& binning, bool all_finite,
           Tables& pending, int64_t* counts);

// Adds X^T X to the upper triangle of gram[columns][columns], X being x as rows of `columns`. What
// is not finite counts as zero.
void add_gram(const Machine& machine, const Tensor& x, size_t columns, double* gram);

}  // namespace lucid_fx::observe
