#include "c_api.h"

#include <algorithm>
#include <string>

#include "c_api_errors.h"
#include "isa.h"
#include "observe/registry.h"

namespace {

using namespace lucid_fx;
using observe::Config;
using observe::ElementType;
using observe::State;

Config to_config(const lfx_observer_config& c) {
  const Config config{observe::parse_kind(c.kind), c.bins, c.averaging_constant, c.ch_axis};
  config.check();
  return config;
}

ElementType to_type(int32_t type) {
  switch (type) {
    case LFX_FLOAT32:
      return ElementType::kFloat32;
    case LFX_FLOAT16:
      return ElementType::kFloat16;
    case LFX_FLOAT64:
      return ElementType::kFloat64;
    default:
      throw InvalidArgument("observers take float32, float16 and float64 only");
  }
}

const observe::Kernels& to_kernels(const char* isa) {
  return found(observe::find_kernels(isa), isa);
}

void export_scalars(const Config& config, const State& from, lfx_observer_state& to) {
  to.kind = observe::kind_name(config.kind);
  to.batches = from.batches;
  to.elements = from.elements;
  to.max_elements = from.max_elements;
  to.nan_count = from.nan_count;
  to.inf_count = from.inf_count;
  to.overall_min = from.overall_min;
  to.overall_max = from.overall_max;
  to.average_min = from.average_min;
  to.average_max = from.average_max;
  to.histogram_min = from.histogram_min;
  to.histogram_max = from.histogram_max;
  to.channels = static_cast<int64_t>(from.channel_min.size());
  to.bins = static_cast<int64_t>(from.histogram.size());
  to.columns = from.columns;
}

State import_state(const lfx_observer_state& from) {
  State to;
  to.batches = from.batches;
  to.elements = from.elements;
  to.max_elements = from.max_elements;
  to.nan_count = from.nan_count;
  to.inf_count = from.inf_count;
  to.overall_min = from.overall_min;
  to.overall_max = from.overall_max;
  to.average_min = from.average_min;
  to.average_max = from.average_max;
  to.histogram_min = from.histogram_min;
  to.histogram_max = from.histogram_max;
  return to;
}

}  // namespace

std::string& lucid_fx::last_error() {
  static thread_local std::string text;
  return text;
}

int32_t lfx_abi_version(void) { return LFX_ABI_VERSION; }

const char* lfx_version(void) { return LUCID_FX_VERSION; }

const char* lfx_last_error(void) { return last_error().c_str(); }

const char* lfx_cpu_isa(void) { return cpu_isa(); }

const char* lfx_kernel_isa(size_t i) {
  const observe::KernelList all = observe::all_kernels();
  for (size_t k = 0; k < all.count; ++k) {
    if (observe::find_kernels(all.first[k].name) != nullptr && i-- == 0) return all.first[k].name;
  }
  return nullptr;
}

int lfx_observer_update(const char* key, const lfx_observer_config* config, int32_t type,
                        const void* data, const int64_t* dims, size_t rank, const char* isa) {
  return guarded([&] {
    observe::Tensor x{data, to_type(type), dims, rank, 1};
    for (size_t i = 0; i < rank; ++i) x.size *= static_cast<size_t>(dims[i]);
    observe::acquire(key)->update(to_config(*config), {to_kernels(isa), Serial()}, x);
  });
}

int lfx_observer_read(const char* key, lfx_observer_state* out, float* channel_min,
                      float* channel_max, int64_t* histogram) {
  return guarded([&] {
    const auto observer = observe::find(key);
    Config config;
    State state;
    const int64_t channels = out->channels, bins = out->bins;
    if (observer == nullptr || !observer->read(&config, &state)) {
      *out = lfx_observer_state{};
      return;
    }
    export_scalars(config, state, *out);
    if (channel_min != nullptr && channel_max != nullptr) {
      if (channels != out->channels) throw InvalidArgument("the number of channels has changed");
      std::copy(state.channel_min.begin(), state.channel_min.end(), channel_min);
      std::copy(state.channel_max.begin(), state.channel_max.end(), channel_max);
    }
    if (histogram != nullptr) {
      if (bins != out->bins) throw InvalidArgument("the number of bins has changed");
      std::copy(state.histogram.begin(), state.histogram.end(), histogram);
    }
  });
}

int lfx_observer_gram(const char* key, double* gram, int64_t columns) {
  return guarded([&] {
    const auto observer = observe::find(key);
    if (observer == nullptr || !observer->read_gram(columns, gram)) {
      throw InvalidArgument("observer '" + std::string(key) + "' has no Gram matrix of " +
                            std::to_string(columns) + " columns");
    }
  });
}

int lfx_observer_load(const char* key, const lfx_observer_config* config,
                      const lfx_observer_state* from, const float* channel_min,
                      const float* channel_max, const int64_t* histogram) {
  return guarded([&] {
    const Config checked = to_config(*config);
    State state = import_state(*from);
    if (from->channels > 0) {
      state.channel_min.assign(channel_min, channel_min + from->channels);
      state.channel_max.assign(channel_max, channel_max + from->channels);
    }
    if (from->bins > 0) {
      if (from->bins != checked.bins) throw InvalidArgument("the histogram has not `bins` bins");
      state.histogram.assign(histogram, histogram + from->bins);
    }
    observe::acquire(key)->load(checked, state);
  });
}

void lfx_observer_reset(const char* prefix) { observe::reset(prefix); }

int64_t lfx_observer_nonfinite(const char* prefix) { return observe::nonfinite(prefix); }
