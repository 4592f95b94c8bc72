#include "block.h"

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
    if (selects(name, kernels.name, kernels.needs)) return &kernels;
  }
  return nullptr;
}

}  // namespace lucid_fx::block
