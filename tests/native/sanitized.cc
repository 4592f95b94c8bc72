// A program for the address and undefined-behaviour sanitizers: every kernel set, through the C
// API, on operands in memory of exactly their size. test_sanitized.py builds it and runs it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>

#include "c_api.h"

namespace {

int calls = 0;

void check(int failed) {
  ++calls;
  if (failed == 0) return;
  std::fprintf(stderr, "%s\n", lfx_last_error());
  std::exit(1);
}

// Memory of its own for each array, so that one byte too far is an error.
template <class T>
class Array {
 public:
  explicit Array(int64_t n, T value = T{}) : data_(new T[static_cast<size_t>(n)]) {
    for (int64_t i = 0; i < n; ++i) data_[i] = value;
  }
  operator T*() const { return data_.get(); }

 private:
  std::unique_ptr<T[]> data_;
};

Array<float> real(int64_t n) {
  Array<float> x(n);
  uint32_t state = 12345u;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    x[i] = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return x;
}

void products(const lfx_matmul_layout& layout, const char* scale_type, int64_t bytes, int64_t m) {
  int64_t panels, blocks, panel_bytes;
  check(lfx_matmul_sizes(&layout, &panels, &blocks, &panel_bytes));
  const int64_t k = layout.k, n = layout.n;
  const Array<float> w = real(k * n), a = real(m * k), bias = real(n);
  const Array<float> least(blocks * n), greatest(blocks * n), steps(blocks * n, 0.25f);
  const Array<uint8_t> codes(k * n), packed(panels * panel_bytes);
  const Array<uint8_t> scales(panels * blocks * 16 * bytes, 0x38), zeros(panels * blocks * 16, 1);
  int32_t finite = 0;
  check(lfx_matmul_extremes(&layout, w, n, 1, least, greatest, &finite, 2));
  check(lfx_matmul_extremes(&layout, w, 1, k, least, greatest, &finite, 2));
  check(lfx_matmul_encode(&layout, w, 1, k, steps, nullptr, 0, codes, 2));
  check(lfx_matmul_encode(&layout, w, n, 1, steps, nullptr, 0, codes, 2));
  check(lfx_matmul_pack(&layout, codes, packed, 2));
  check(lfx_matmul_unpack(&layout, packed, codes, 2));
  int32_t runs = 0;
  for (size_t i = 0; const char* isa = lfx_matmul_isa(i, &runs); ++i) {
    if (runs == 0) continue;
    for (const char* compute : {"int8", "float32"}) {
      const Array<float> y(m * n);
      const uint8_t* zero = m % 2 != 0 ? static_cast<uint8_t*>(zeros) : nullptr;
      check(lfx_matmul(&layout, packed, scales, scale_type, 1.0f, zero, bias, compute, a, m, y, 2,
                       isa));
    }
  }
}

void observations(int64_t rows, int64_t columns) {
  const Array<float> x = real(rows * columns);
  const int64_t dims[] = {rows, columns};
  for (size_t i = 0; const char* isa = lfx_kernel_isa(i); ++i) {
    for (const char* kind : {"minmax", "per_channel", "histogram"}) {
      for (const int64_t axis : {0, 1}) {
        const lfx_observer_config config{kind, 100, 0.01f, axis};
        lfx_observer_reset("sanitized");
        check(lfx_observer_update("sanitized", &config, LFX_FLOAT32, x, dims, 2, isa));
      }
    }
  }
}

void noise(int64_t n) {
  constexpr float infinity = __builtin_inff();
  const lfx_noise_form form{0.0f, 0.25f, -infinity, infinity, -0.5f, 0.5f, -0.5, 0.5};
  const Array<float> exact = real(n), values(n, 0.5f);
  if (n > 3) exact[n / 2] = infinity;
  const Array<uint8_t> codes(n, 1);
  const char* isa;
  for (size_t i = 0; (isa = lfx_kernel_isa(i)) != nullptr; ++i) {
    lfx_noise_sums sums{};
    if (lfx_noise_add(&form, LFX_UINT8, exact, codes, 0, &sums, isa) != 0) continue;  // no such set
    const auto size = static_cast<size_t>(n);
    check(lfx_noise_add(&form, LFX_UINT8, exact, codes, size, &sums, isa));
    check(lfx_noise_add(&form, LFX_INT8, exact, codes, size, &sums, isa));
    check(lfx_noise_add(&form, LFX_FLOAT32, exact, values, size, &sums, isa));
  }
}

}  // namespace

int main() {
  for (const int64_t bits : {2, 4, 8}) {
    for (const int64_t block : {16, 32, 256}) {
      for (const int64_t k : {1, 16, 33, 300}) {
        for (const int64_t n : {1, 16, 37}) {
          for (const int64_t m : {1, 2, 3, 8, 13}) {
            const lfx_matmul_layout layout{k, n, block, bits};
            products(layout, "f32", 4, m);
            products(layout, "f16", 2, m);
            products(layout, "bf16", 2, m);
            products(layout, "ue4m3", 1, m);
          }
        }
      }
    }
  }
  for (const int64_t rows : {1, 7, 100}) {
    for (const int64_t columns : {1, 15, 64, 333}) observations(rows, columns);
  }
  for (const int64_t n : {0, 1, 31, 32, 33, 4095, 4096, 4099}) noise(n);
  std::printf("%d calls\n", calls);
}
