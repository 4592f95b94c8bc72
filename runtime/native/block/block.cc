#include "block.h"

#include <cstring>

#include "../isa.h"

namespace lucid_fx::block {
namespace {

constexpr Kernels kKernels[] = {
#define LUCID_FX_BLOCK_KERNELS(needs, isa) \
  {#isa, needs, encode_##isa, decode_##isa, pack_##isa, unpack_##isa},
#include "kernels.inc"
#undef LUCID_FX_BLOCK_KERNELS
};

}  // namespace

const Kernels* find_kernels(const char* name) {
  for (const Kernels& kernels : kKernels) {
    const bool runs_here = (kernels.needs & cpu_features()) == kernels.needs;
    if (runs_here && (name == nullptr || std::strcmp(name, kernels.name) == 0)) return &kernels;
  }
  return nullptr;
}

}  // namespace lucid_fx::block
