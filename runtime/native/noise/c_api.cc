// The C function for the noise of a tensor.
#include "../c_api.h"
#include "../c_api_errors.h"
#include "noise.h"

namespace {

using namespace lucid_fx;

noise::Type to_type(int32_t type) {
  switch (type) {
    case LFX_FLOAT32:
      return noise::Type::kFloat;
    case LFX_UINT8:
      return noise::Type::kUint8;
    case LFX_INT8:
      return noise::Type::kInt8;
    default:
      throw InvalidArgument("noise is that of float32, uint8 or int8");
  }
}

}  // namespace

int lfx_noise_add(const lfx_noise_form* f, int32_t type, const float* exact, const void* given,
                  size_t n, lfx_noise_sums* s, const char* isa) {
  return guarded([&] {
    const noise::Form form{f->zero_point, f->scale, f->needed_low, f->needed_high,
                           f->below,      f->above, f->low,        f->high};
    noise::Sums sums{s->signal, s->noise, s->outside,  s->largest,
                     s->low,    s->high,  s->elements, s->clipped};
    noise::add(found(noise::find_kernels(isa), isa), form, to_type(type), exact, given, n, &sums);
    *s = {sums.signal, sums.noise, sums.outside,  sums.largest,
          sums.low,    sums.high,  sums.elements, sums.clipped};
  });
}
