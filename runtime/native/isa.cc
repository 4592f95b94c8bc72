#include "isa.h"

#include <cstring>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace lucid_fx {
namespace {

#if defined(__x86_64__) || defined(__i386__)

constexpr bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

// XCR0: which register files the operating system saves. Without it a set CPUID bit means nothing.
uint32_t saved_registers() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

uint32_t detect() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return kScalar;
  constexpr uint32_t kFma = 1u << 12, kOsxsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;
  if (!has(c, kFma | kOsxsave | kAvx | kF16c)) return kScalar;
  const uint32_t saved = saved_registers();
  if (!has(saved, 0x6)) return kScalar;  // xmm, ymm

  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return kScalar;
  const uint32_t subleaves = a;
  if (!has(b, 1u << 5)) return kScalar;  // AVX2
  uint32_t features = kAvx2;
  constexpr uint32_t kF = 1u << 16, kDq = 1u << 17, kBw = 1u << 30, kVl = 1u << 31;
  if (has(b, kF | kDq | kBw | kVl) && has(saved, 0xe6)) {  // and opmask, both zmm halves
    features |= kAvx512;
    if (has(c, 1u << 11)) features |= kAvx512Vnni;
  }
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, 1u << 4)) {
    features |= kAvxVnni;
  }
  return features;
}

#elif defined(__aarch64__)

uint32_t detect() {
#if defined(__APPLE__)
  int dot = 0;
  size_t size = sizeof dot;
  const bool known = sysctlbyname("hw.optional.arm.FEAT_DotProd", &dot, &size, nullptr, 0) == 0;
  return kNeon | (known && dot ? kNeonDot : 0u);
#elif defined(__linux__)
  constexpr unsigned long kHwcapAsimdDp = 1ul << 20;
  return kNeon | ((getauxval(AT_HWCAP) & kHwcapAsimdDp) != 0 ? kNeonDot : 0u);
#else
  return kNeon;
#endif
}

#else

uint32_t detect() { return kScalar; }

#endif

}  // namespace

uint32_t cpu_features() {
  static const uint32_t features = detect();
  return features;
}

bool selects(const char* wanted, const char* name, uint32_t needs) {
  const bool runs_here = (needs & cpu_features()) == needs;
  return runs_here && (wanted == nullptr || std::strcmp(wanted, name) == 0);
}

const char* cpu_isa() {
  const uint32_t features = cpu_features();
  if (features & kAvx512Vnni) return "avx512vnni";
  if (features & kAvx512) return "avx512";
  if (features & kAvxVnni) return "avxvnni";
  if (features & kAvx2) return "avx2";
  if (features & kNeonDot) return "neondot";
  if (features & kNeon) return "neon";
  return "scalar";
}

}  // namespace lucid_fx
