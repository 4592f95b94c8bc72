// The C functions for block-scaled tensors.
#include <memory>
#include <string>

#include "../c_api.h"
#include "../c_api_errors.h"
#include "../invalid_argument.h"
#include "../observe/observe.h"
#include "tensor.h"

namespace {

using namespace lucid_fx;
using block::Blocks;
using block::Kernels;
using block::Machine;
using block::Packing;

std::vector<size_t> to_sizes(const int64_t* dims, size_t rank, int64_t least) {
  for (size_t i = 0; i < rank; ++i) {
    if (dims[i] < least) throw InvalidArgument("a dimension or an extent is out of range");
  }
  return std::vector<size_t>(dims, dims + rank);
}

Packing to_packing(const lfx_block_packing& p) {
  const bool bits = p.bits == 2 || p.bits == 4 || p.bits == 8;
  if (p.rank == 0 || p.axis >= p.rank || !bits || (p.unit != 1 && p.unit != 4)) {
    throw InvalidArgument("no such packing of codes");
  }
  return {to_sizes(p.dims, p.rank, 0), p.axis, static_cast<size_t>(p.bits),
          static_cast<size_t>(p.unit)};
}

Blocks to_blocks(const int64_t* dims, const int64_t* block, size_t rank) {
  if (rank == 0) throw InvalidArgument("blocks need an axis");
  return {to_sizes(dims, rank, 0), to_sizes(block, rank, 1)};
}

block::Table to_table(const float* entries, int32_t count) {
  int bits = 1;
  while (bits < 8 && 1 << bits < count) ++bits;
  if (1 << bits != count) throw InvalidArgument("the table has not 2, 4, ... 256 entries");
  bool integers = true;
  for (int i = 0; i < count; ++i) integers &= entries[i] == (i < count / 2 ? i : i - count);
  return {entries, bits, integers};
}

size_t to_threads(int32_t threads) {
  if (threads < 1) throw InvalidArgument("threads must be positive");
  return static_cast<size_t>(threads);
}

const Kernels& to_kernels(const char* isa) {
  const Kernels* kernels = block::find_kernels(isa);
  if (kernels == nullptr) {
    throw InvalidArgument("this machine has no block kernels '" + std::string(isa) + "'");
  }
  return *kernels;
}

}  // namespace

int lfx_block_pack(const lfx_block_packing* packing, const uint8_t* codes, uint8_t* data,
                   int32_t threads, const char* isa) {
  return guarded([&] {
    const Threads parallel(to_threads(threads));
    block::pack({to_kernels(isa), parallel}, to_packing(*packing), codes, data);
  });
}

int lfx_block_unpack(const lfx_block_packing* packing, const uint8_t* data, int32_t sign,
                     uint8_t* codes, int32_t threads, const char* isa) {
  return guarded([&] {
    if (sign < 0 || sign > 8) throw InvalidArgument("sign is no number of bits");
    const Threads parallel(to_threads(threads));
    block::unpack({to_kernels(isa), parallel}, to_packing(*packing), data, sign, codes);
  });
}

int lfx_block_quantize(const lfx_block_packing* packing, const int64_t* block, const float* x,
                       const float* scales, const lfx_block_encoder* e, uint8_t* data,
                       int32_t* finite, int32_t threads, const char* isa) {
  return guarded([&] {
    if (e->kind < LFX_BLOCK_HALF_AWAY || e->kind > LFX_BLOCK_SMALL_FLOAT || e->bits < 1 ||
        e->bits > 8 || e->mantissa_bits < 0 || e->mantissa_bits > 8 || e->bias < 0 ||
        e->bias > 64) {
      throw InvalidArgument("no such format of codes");
    }
    const block::Encoder encoder{
        static_cast<block::Rounding>(e->kind), e->low, e->high, e->mantissa_bits, e->bias, e->bits};
    const Threads parallel(to_threads(threads));
    const Blocks blocks = to_blocks(packing->dims, block, packing->rank);
    *finite = block::quantize({to_kernels(isa), parallel}, to_packing(*packing), blocks, x, scales,
                              encoder, data);
  });
}

int lfx_block_dequantize(const lfx_block_packing* packing, const int64_t* block,
                         const uint8_t* data, const float* scales, const float* table,
                         int32_t count, float* y, int32_t threads, const char* isa) {
  return guarded([&] {
    const block::Table entries = to_table(table, count);
    const Threads parallel(to_threads(threads));
    const Blocks blocks = to_blocks(packing->dims, block, packing->rank);
    block::dequantize({to_kernels(isa), parallel}, to_packing(*packing), blocks, data, scales,
                      entries, y);
  });
}

int lfx_block_extremes(const int64_t* dims, const int64_t* block, size_t rank, const float* x,
                       float* min, float* max, int32_t* finite, int32_t threads, const char* isa) {
  return guarded([&] {
    found(observe::find_kernels(isa), isa);
    const Threads parallel(to_threads(threads));
    *finite = block::extremes(parallel, isa, to_blocks(dims, block, rank), x, min, max);
  });
}
