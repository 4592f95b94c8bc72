#include "matmul.h"

#include <cstring>

#include "../isa.h"

namespace lucid_fx::matmul {
namespace {

bool runs_here(const Kernels& kernels) { return (kernels.needs & cpu_features()) == kernels.needs; }

const Kernels* const kKernels[] = {
#define LUCID_FX_MATMUL_KERNELS(needs, isa) &kernels_##isa,
#include "kernels.inc"
#undef LUCID_FX_MATMUL_KERNELS
};

}  // namespace

KernelList all_kernels() { return {kKernels, sizeof kKernels / sizeof kKernels[0]}; }

const Kernels* find_kernels(const char* name) {
  for (const Kernels* kernels : kKernels) {
    if (runs_here(*kernels) && (name == nullptr || std::strcmp(name, kernels->name) == 0)) {
      return kernels;
    }
  }
  return nullptr;
}

}  // namespace lucid_fx::matmul
