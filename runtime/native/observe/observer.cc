#include "observer.h"

#include <algorithm>
#include <cmath>

namespace lucid_fx::observe {
namespace {

constexpr const char* kKindNames[] = {
    "minmax", "moving_average", "per_channel", "per_channel_moving_average", "histogram", "gram"};

bool per_channel(Kind kind) {
  return kind == Kind::kPerChannel || kind == Kind::kPerChannelMovingAverage;
}

// v += c * (batch - v) in float32; the first value is taken as it is. A difference that overflows
// float32 is averaged in float64, because the result itself fits.
void average(float& v, float batch, float c) {
  if (std::isinf(batch)) return;  // nothing finite in this batch
  if (std::isinf(v)) {
    v = batch;
    return;
  }
  const float next = v + c * (batch - v);
  v = std::isfinite(next) ? next : static_cast<float>(v + double{c} * (double{batch} - v));
}

// A range that overflows float32 still has bins that fit it.
float bin_width(float lo, float hi, size_t bins) {
  const float width = (hi - lo) / static_cast<float>(bins);
  if (std::isfinite(width)) return width;
  return static_cast<float>((double{hi} - double{lo}) / static_cast<double>(bins));
}

// Moves every old bin's count as a whole to the new bin that holds the old bin's centre:
//   centre_i = old_lo + (i + 1/2) * old_width
//   j = trunc(clip((centre_i - new_lo) / new_width, 0, bins - 1))
// in float32 throughout.
void rebin(std::vector<int64_t>& counts, float old_lo, float old_hi, float new_lo, float new_hi) {
  static thread_local std::vector<int64_t> moved;
  const size_t bins = counts.size();
  const float old_width = bin_width(old_lo, old_hi, bins);
  const float new_width = bin_width(new_lo, new_hi, bins);
  if (new_width == 0.0f) return;  // below the precision of float32
  const float last = static_cast<float>(bins - 1);
  moved.assign(bins, 0);
  for (size_t i = 0; i < bins; ++i) {
    if (counts[i] == 0) continue;
    const float offset = (static_cast<float>(i) + 0.5f) * old_width;
    const float position = ((old_lo + offset) - new_lo) / new_width;
    moved[position > 0.0f ? static_cast<size_t>(std::min(position, last)) : 0] += counts[i];
  }
  std::copy(moved.begin(), moved.end(), counts.begin());
}

}  // namespace

const char* kind_name(Kind kind) { return kKindNames[static_cast<int>(kind)]; }

Kind parse_kind(const std::string& name) {
  for (int i = 0; i < static_cast<int>(std::size(kKindNames)); ++i) {
    if (name == kKindNames[i]) return static_cast<Kind>(i);
  }
  throw InvalidArgument("no observer kind '" + name +
                        "'; it is one of minmax, moving_average, per_channel, "
                        "per_channel_moving_average, histogram, gram");
}

void Config::check() const {
  if (bins < 1 || bins > kMaxBins) {
    throw InvalidArgument("bins is " + std::to_string(bins) + ", but must be 1 to " +
                          std::to_string(kMaxBins));
  }
  if (!(averaging_constant >= 0.0f && averaging_constant <= 1.0f)) {
    throw InvalidArgument("averaging_constant is " + std::to_string(averaging_constant) +
                          ", but must be 0 to 1");
  }
}

// Only what the kind uses has to agree.
bool Config::operator==(const Config& other) const {
  if (kind != other.kind) return false;
  if (kind == Kind::kHistogram) return bins == other.bins;
  if (per_channel(kind) && ch_axis != other.ch_axis) return false;
  const bool averages = kind == Kind::kMovingAverage || kind == Kind::kPerChannelMovingAverage;
  return !averages || averaging_constant == other.averaging_constant;
}

void Observer::check(const Config& config) {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_locked(config);
}

void Observer::check_locked(const Config& config) const {
  if (!seen_ || config == config_) return;
  throw InvalidArgument("observer '" + key_ + "' holds data of kind " + kind_name(config_.kind) +
                        " recorded with other settings; reset it or use another key");
}

Layout Observer::layout(const Config& config, const Tensor& x) const {
  if (x.rank == 0) return {1, 1, 1};  // a scalar is its only channel
  const int64_t rank = static_cast<int64_t>(x.rank);
  const int64_t axis = config.ch_axis < 0 ? config.ch_axis + rank : config.ch_axis;
  if (axis < 0 || axis >= rank) {
    throw InvalidArgument("observer '" + key_ + "' has ch_axis " + std::to_string(config.ch_axis) +
                          ", but its tensor has rank " + std::to_string(rank));
  }
  Layout layout{1, static_cast<size_t>(x.dims[axis]), 1};
  for (int64_t i = 0; i < axis; ++i) layout.outer *= static_cast<size_t>(x.dims[i]);
  for (int64_t i = axis + 1; i < rank; ++i) layout.inner *= static_cast<size_t>(x.dims[i]);
  const size_t before = state_.channel_min.size();
  if (seen_ && before != 0 && before != layout.channels) {
    throw InvalidArgument("observer '" + key_ + "' has seen " + std::to_string(before) +
                          " channels, but now gets " + std::to_string(layout.channels) +
                          " on axis " + std::to_string(axis));
  }
  return layout;
}

void Observer::update(const Config& config, const Machine& machine, const Tensor& x) {
  turnstile_.enter();
  if (x.size != 0) record(config, machine, x);
  turnstile_.leave();
}

void Observer::record(const Config& config, const Machine& machine, const Tensor& x) {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_locked(config);
  Summary batch;
  if (per_channel(config.kind)) {
    const Layout shape = layout(config, x);
    batch_min_.resize(shape.channels);
    batch_max_.resize(shape.channels);
    batch = summarize_channels(machine, x, shape, batch_min_.data(), batch_max_.data());
    update_channels(config);
  } else {
    batch = summarize(machine, x);
    if (config.kind == Kind::kHistogram && batch.any_finite()) {
      update_histogram(config, machine, x, batch);
    } else if (config.kind == Kind::kMovingAverage) {
      average(state_.average_min, batch.min, config.averaging_constant);
      average(state_.average_max, batch.max, config.averaging_constant);
    } else if (config.kind == Kind::kGram) {
      update_gram(machine, x);
    }
  }
  if (!seen_) {
    seen_ = true;
    config_ = config;
  }
  ++state_.batches;
  state_.elements += static_cast<int64_t>(x.size);
  state_.max_elements = std::max(state_.max_elements, static_cast<int64_t>(x.size));
  state_.nan_count += batch.nan_count;
  state_.inf_count += batch.inf_count;
  state_.overall_min = std::min(state_.overall_min, batch.min);
  state_.overall_max = std::max(state_.overall_max, batch.max);
}

void Observer::update_channels(const Config& config) {
  const size_t channels = batch_min_.size();
  if (state_.channel_min.empty()) {
    state_.channel_min.assign(channels, __builtin_inff());
    state_.channel_max.assign(channels, -__builtin_inff());
  }
  for (size_t c = 0; c < channels; ++c) {
    float &min = state_.channel_min[c], &max = state_.channel_max[c];
    if (config.kind == Kind::kPerChannel) {
      min = std::min(min, batch_min_[c]);
      max = std::max(max, batch_max_[c]);
    } else {
      average(min, batch_min_[c], config.averaging_constant);
      average(max, batch_max_[c], config.averaging_constant);
    }
  }
}

void Observer::update_gram(const Machine& machine, const Tensor& x) {
  const int64_t columns = x.rank == 0 ? 1 : x.dims[x.rank - 1];
  if (state_.columns != 0 && state_.columns != columns) {
    throw InvalidArgument("observer '" + key_ + "' has seen " + std::to_string(state_.columns) +
                          " columns, but now gets " + std::to_string(columns));
  }
  state_.columns = columns;
  const auto width = static_cast<size_t>(columns);
  gram_.resize(width * width);
  add_gram(machine, x, width, gram_.data());
}

void Observer::update_histogram(const Config& config, const Machine& machine, const Tensor& x,
                                const Summary& batch) {
  State& s = state_;
  const float lo = std::min(s.histogram_min, batch.min), hi = std::max(s.histogram_max, batch.max);
  if (s.histogram.empty()) {
    s.histogram.assign(static_cast<size_t>(config.bins), 0);
  } else if (lo != s.histogram_min || hi != s.histogram_max) {
    pending_.drain(s.histogram.data());
    rebin(s.histogram, s.histogram_min, s.histogram_max, lo, hi);
  }
  s.histogram_min = lo;
  s.histogram_max = hi;
  const Binning binning = make_binning(lo, hi, static_cast<int>(config.bins));
  count(machine, x, binning, batch.all_finite(), pending_.of_this_thread(s.histogram.data()),
        s.histogram.data());
}

bool Observer::read(Config* config, State* state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!seen_) return false;
  pending_.drain(state_.histogram.data());
  *config = config_;
  *state = state_;
  return true;
}

bool Observer::read_gram(int64_t columns, double* to) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gram_.empty() || state_.columns != columns) return false;
  const auto n = static_cast<size_t>(columns);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) to[i * n + j] = gram_[i < j ? i * n + j : j * n + i];
  }
  return true;
}

void Observer::load(const Config& config, const State& state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  seen_ = true;
  config_ = config;
  state_ = state;
  pending_ = {};
}

int64_t Observer::nonfinite() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_.nan_count + state_.inf_count;
}

void Observer::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  seen_ = false;
  config_ = Config();
  state_ = State();
  pending_ = {};
  gram_ = {};
}

}  // namespace lucid_fx::observe
