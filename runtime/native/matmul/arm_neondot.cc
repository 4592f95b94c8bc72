// sdot multiplies signed bytes. Codes of 2 and 4 bits are small enough to be read as signed; those
// of 8 bits are stored with an offset of 128, which flipping the top bit takes away.
#include <arm_neon.h>

#include "kernel_file.h"
#include "matmul.h"

namespace lucid_fx::matmul {
namespace {

#include "rows.inc"

struct NeonDot {
  static constexpr int kRows = 4, kParts = 4;
  static constexpr bool kSideBySide = false;
  using Codes = uint8x16_t;
  using Sums = int32x4_t;
  using Floats = float32x4_t;

  static Codes load_codes(const uint8_t* x) { return vld1q_u8(x); }
  template <int kBits>
  static Codes field(Codes packed, int i) {
    if (kBits == 8) return packed;
    return vandq_u8(vshlq_u8(packed, vdupq_n_s8(static_cast<int8_t>(-i * kBits))),
                    vdupq_n_u8((1 << kBits) - 1));
  }
  static int8x16_t four(const int8_t* x) {
    int32_t word;
    __builtin_memcpy(&word, x, sizeof word);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
  }

  template <int kBits>
  struct Products {
    using Partial = Sums;
    static constexpr size_t kDots = kMaxBlock;
    static Partial begin(Sums sum) { return kBits == 8 ? vdupq_n_s32(0) : sum; }
    static Partial add(Partial p, Codes w, int8x16_t a) {
      if (kBits == 8) w = veorq_u8(w, vdupq_n_u8(0x80));
      return vdotq_s32(p, vreinterpretq_s8_u8(w), a);
    }
    static Sums end(Sums, Partial p) { return p; }
  };

  static Sums ints(int32_t x) { return vdupq_n_s32(x); }
  static Sums plus(Sums a, Sums b) { return vaddq_s32(a, b); }
  static Sums load_ints(const uint8_t* x) { return vreinterpretq_s32_u8(vld1q_u8(x)); }
  template <int kBits>
  static Sums bits(Sums packed, int from) {
    const uint32x4_t moved = vshlq_u32(vreinterpretq_u32_s32(packed), vdupq_n_s32(-from));
    return vreinterpretq_s32_u32(vandq_u32(moved, vdupq_n_u32((1u << kBits) - 1)));
  }

  static Floats floats(float x) { return vdupq_n_f32(x); }
  static Floats load_floats(const float* x) { return vld1q_f32(x); }
  static Floats load_halves(const uint16_t* x) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
  }
  static Floats load_bfloats(const uint16_t* x) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(x), 16));
  }
  static uint32x4_t load_wide(const uint8_t* x) {
    uint32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
  }
  static Floats load_bytes(const uint8_t* x) { return vcvtq_f32_u32(load_wide(x)); }
  static Floats load_ue4m3(const uint8_t* x) {
    const uint32x4_t code = vandq_u32(load_wide(x), vdupq_n_u32(0x7f));
    const Floats number = vmulq_n_f32(vreinterpretq_f32_u32(vshlq_n_u32(code, 20)), 0x1p120f);
    const uint32x4_t nan = vceqq_u32(code, vdupq_n_u32(0x7f));
    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(number), nan));
  }
  static void store_floats(float* y, Floats x) { vst1q_f32(y, x); }
  static Floats to_floats(Sums x) { return vcvtq_f32_s32(x); }
  static Floats minus(Floats a, Floats b) { return vsubq_f32(a, b); }
  static Floats times(Floats a, Floats b) { return vmulq_f32(a, b); }
  static Floats fused(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
};

using V = NeonDot;
#include "tiles.inc"

}  // namespace

const Kernels kernels_neondot = LUCID_FX_MATMUL_KERNEL_SET("neondot", kNeon | kNeonDot);

}  // namespace lucid_fx::matmul
