// The definition of the matmul kernels: one column at a time.
#include "kernel_file.h"
#include "matmul.h"

namespace lucid_fx::matmul {
namespace {

#include "rows.inc"

struct Scalar {
  static constexpr int kRows = 1, kParts = kPanel;
  static constexpr bool kSideBySide = false;
  using Codes = const uint8_t*;
  using Sums = int32_t;
  using Floats = float;

  // Field i of the four bytes of a column.
  struct Fields {
    uint8_t code[4];
  };

  static Codes load_codes(const uint8_t* x) { return x; }
  template <int kBits>
  static Fields field(Codes packed, int i) {
    Fields fields;
    for (int j = 0; j < 4; ++j) {
      fields.code[j] = static_cast<uint8_t>(packed[j] >> (i * kBits) & ((1 << kBits) - 1));
    }
    return fields;
  }
  static const int8_t* four(const int8_t* x) { return x; }

  template <int kBits>
  struct Products {
    using Partial = Sums;
    static constexpr size_t kDots = kMaxBlock;
    static Partial begin(Sums sum) { return sum; }
    static Partial add(Partial p, Fields w, const int8_t* a) {
      for (int j = 0; j < 4; ++j) p += w.code[j] * a[j];
      return p;
    }
    static Sums end(Sums, Partial p) { return p; }
  };

  static Sums ints(int32_t x) { return x; }
  static Sums plus(Sums a, Sums b) { return a + b; }
  static uint32_t load_ints(const uint8_t* x) {
    return x[0] | x[1] << 8 | x[2] << 16 | static_cast<uint32_t>(x[3]) << 24;
  }
  template <int kBits>
  static Sums bits(uint32_t packed, int from) {
    return static_cast<Sums>(packed >> from & ((1u << kBits) - 1));
  }

  static Floats floats(float x) { return x; }
  static Floats load_floats(const float* x) { return *x; }
  static Floats load_halves(const uint16_t* x) {
    Floats wide;
    from_half(x, 1, &wide);
    return wide;
  }
  static Floats load_bfloats(const uint16_t* x) {
    return float_of(static_cast<uint32_t>(*x) << 16);
  }
  static Floats load_bytes(const uint8_t* x) { return *x; }
  static Floats load_ue4m3(const uint8_t* x) {
    const uint32_t code = *x & 0x7fu;
    return code == 0x7f ? __builtin_nanf("") : float_of(code << 20) * 0x1p120f;
  }
  static void store_floats(float* y, Floats x) { *y = x; }
  static Floats to_floats(Sums x) { return static_cast<float>(x); }
  static Floats minus(Floats a, Floats b) { return a - b; }
  static Floats times(Floats a, Floats b) { return a * b; }
  static Floats fused(Floats a, Floats b, Floats c) { return __builtin_fmaf(a, b, c); }
};

using V = Scalar;
#include "tiles.inc"

}  // namespace

const Kernels kernels_scalar = LUCID_FX_MATMUL_KERNEL_SET("scalar", kScalar);

}  // namespace lucid_fx::matmul
