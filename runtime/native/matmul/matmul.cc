#include "matmul.h"

#include "../isa.h"

namespace lucid_fx::matmul {
namespace {

const Kernels* const kKernels[] = {
#define LUCID_FX_MATMUL_KERNELS(needs, isa) &kernels_##isa,
#include "kernels.inc"
#undef LUCID_FX_MATMUL_KERNELS
};

}  // namespace

KernelList all_kernels() { return {kKernels, sizeof kKernels / sizeof kKernels[0]}; }

const Kernels* find_kernels(const char* name) {
  for (const Kernels* kernels : kKernels) {
    if (selects(name, kernels->name, kernels->needs)) return kernels;
  }
  return nullptr;
}

}  // namespace lucid_fx::matmul
