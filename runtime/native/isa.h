// What the CPU can do, asked once at run time: the library itself is built for the plain baseline.
#pragma once

#include <cstdint>

namespace lucid_fx {

// Feature bits. A kernel names the ones it needs; the CPU has any combination of them.
enum Isa : uint32_t {
  kScalar = 0,
  kAvx2 = 1u << 0,        // with FMA and F16C
  kAvxVnni = 1u << 1,     // vpdpbusd on 256-bit registers
  kAvx512 = 1u << 2,      // F, BW, DQ and VL
  kAvx512Vnni = 1u << 3,  // vpdpbusd on 512-bit registers
  kNeon = 1u << 4,
  kNeonDot = 1u << 5,  // sdot, udot
};

// The features of this machine that the operating system also saves and restores.
uint32_t cpu_features();

// Whether this machine runs a kernel set that needs some features, and it is the wanted one; null
// wants any.
bool selects(const char* wanted, const char* name, uint32_t needs);

// The best of them by name: scalar, avx2, avxvnni, avx512, avx512vnni, neon or neondot. Integer dot
// products saturate in their 16-bit intermediate exactly on `avx2` and `avx512` (no VNNI).
const char* cpu_isa();

}  // namespace lucid_fx
