#include "observe.h"

#include "../isa.h"

namespace lucid_fx::observe {
namespace {

constexpr Kernels kKernels[] = {
#define LUCID_FX_OBSERVE_KERNELS(needs, isa) \
  {#isa, needs, extent_##isa, columns_##isa, bin_indices_##isa, from_half_##isa, gram_##isa},
#include "kernels.inc"
#undef LUCID_FX_OBSERVE_KERNELS
};

}  // namespace

Binning make_binning(float lo, float hi, int bins) {
  const double width = lo == hi ? 1.0 : static_cast<double>(hi) - static_cast<double>(lo);
  Binning binning;
  binning.lo = lo;
  binning.step = width / bins;
  binning.bins = bins;
  binning.lo32 = lo;
  binning.inv_below = static_cast<float>((1.0 - 0x1p-22) / binning.step);
  binning.inv_above = static_cast<float>((1.0 + 0x1p-22) / binning.step);
  binning.estimate = binning.step > 0x1p-100 && binning.step < 0x1p100;
  return binning;
}

KernelList all_kernels() { return {kKernels, sizeof kKernels / sizeof kKernels[0]}; }

const Kernels* find_kernels(const char* name) {
  for (const Kernels& kernels : kKernels) {
    if (selects(name, kernels.name, kernels.needs)) return &kernels;
  }
  return nullptr;
}

}  // namespace lucid_fx::observe
