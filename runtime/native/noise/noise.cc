#include "noise.h"

#include <algorithm>
#include <cmath>

#include "../isa.h"

namespace lucid_fx::noise {
namespace {

constexpr Kernels kKernels[] = {
#define LUCID_FX_NOISE_KERNELS(needs, isa) {#isa, needs, sum_##isa},
#include "kernels.inc"
#undef LUCID_FX_NOISE_KERNELS
};

constexpr Sums kNothing{0.0, 0.0, 0.0, 0.0f, __builtin_inff(), -__builtin_inff(), 0, 0};

constexpr size_t size_of(Type type) { return type == Type::kFloat ? sizeof(float) : 1; }

bool is_known(float x) { return std::fabs(x) < kLargest; }

void merge(const Sums& other, Sums* sums) {
  sums->signal += other.signal;
  sums->noise += other.noise;
  sums->outside += other.outside;
  sums->largest = std::max(sums->largest, other.largest);
  sums->low = std::min(sums->low, other.low);
  sums->high = std::max(sums->high, other.high);
  sums->elements += other.elements;
  sums->clipped += other.clipped;
}

// A block that holds values to be left out: those between them, run by run.
Sums sum_known(const Kernels& kernels, const Form& form, Type type, const float* exact,
               const char* given, size_t n) {
  Sums sums = kNothing, part;
  for (size_t begin = 0, end; begin < n; begin = end + 1) {
    for (end = begin; end < n && is_known(exact[end]); ++end) {
    }
    kernels.sum(form, type, exact + begin, given + begin * size_of(type), end - begin, &part);
    merge(part, &sums);
  }
  return sums;
}

void add_outside(const Form& form, const float* exact, size_t n, Sums* sums) {
  for (size_t i = 0; i < n; ++i) {
    const float x = exact[i];
    if (!is_known(x) || (x >= form.below && x <= form.above)) continue;
    const double distance = x > form.above ? x - form.high : form.low - x;
    sums->outside += distance * distance;
    ++sums->clipped;
  }
}

}  // namespace

const Kernels* find_kernels(const char* name) {
  for (const Kernels& kernels : kKernels) {
    if (selects(name, kernels.name, kernels.needs)) return &kernels;
  }
  return nullptr;
}

void add(const Kernels& kernels, const Form& form, Type type, const float* exact, const void* given,
         size_t n, Sums* sums) {
  const char* bytes = static_cast<const char*>(given);
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t count = std::min(kBlock, n - at);
    const char* codes = bytes + at * size_of(type);
    Sums block;
    if (!kernels.sum(form, type, exact + at, codes, count, &block)) {
      block = sum_known(kernels, form, type, exact + at, codes, count);
    }
    if (block.low < form.below || block.high > form.above) {
      add_outside(form, exact + at, count, &block);
    }
    merge(block, sums);
  }
}

}  // namespace lucid_fx::noise
