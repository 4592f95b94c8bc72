// The state of one observed tensor: a fixed size, however much data it sees.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "../invalid_argument.h"
#include "passes.h"
#include "turns.h"

namespace lucid_fx::observe {

enum class Kind {
  kMinMax,
  kMovingAverage,
  kPerChannel,
  kPerChannelMovingAverage,
  kHistogram,
  kGram
};

const char* kind_name(Kind kind);

Kind parse_kind(const std::string& name);

struct Config {
  Kind kind = Kind::kMinMax;
  int64_t bins = 2048;
  float averaging_constant = 0.01f;
  int64_t ch_axis = 0;

  void check() const;
  bool operator==(const Config& other) const;
};

// What every batch changes comes first and fills one cache line: threads in turn hand it on.
struct alignas(kCacheLine) State {
  int64_t batches = 0;
  int64_t elements = 0;
  int64_t max_elements = 0;
  int64_t nan_count = 0;
  int64_t inf_count = 0;
  // Over all data, whatever the kind.
  float overall_min = __builtin_inff();
  float overall_max = -__builtin_inff();
  // kMovingAverage
  float average_min = __builtin_inff();
  float average_max = -__builtin_inff();
  // kHistogram; empty before the first finite element
  float histogram_min = __builtin_inff();
  float histogram_max = -__builtin_inff();
  std::vector<int64_t> histogram;
  // kPerChannel, kPerChannelMovingAverage; empty before the first batch
  std::vector<float> channel_min, channel_max;
  int64_t columns = 0;  // kGram
};

class Observer {
 public:
  explicit Observer(std::string key) : key_(std::move(key)) {}

  // Throws InvalidArgument when data was recorded under another configuration.
  void check(const Config& config);

  // Records one batch, in its turn; a tensor without elements is no batch. On an exception nothing
  // is recorded.
  void update(const Config& config, const Machine& machine, const Tensor& x);

  // False when nothing was recorded or loaded yet.
  bool read(Config* config, State* state);
  void load(const Config& config, const State& state);
  // X^T X of kGram into to[columns][columns]. False when there is none of that size.
  bool read_gram(int64_t columns, double* to);
  int64_t nonfinite();  // values that were NaN or infinite
  void clear();

 private:
  void record(const Config& config, const Machine& machine, const Tensor& x);
  void check_locked(const Config& config) const;
  Layout layout(const Config& config, const Tensor& x) const;
  void update_channels(const Config& config);
  void update_gram(const Machine& machine, const Tensor& x);
  void update_histogram(const Config& config, const Machine& machine, const Tensor& x,
                        const Summary& batch);

  const std::string key_;
  bool seen_ = false;
  Config config_;
  PendingCounts pending_;                     // of the histogram, in the same bins
  std::vector<float> batch_min_, batch_max_;  // per channel, of the current batch
  std::vector<double> gram_;                  // the upper triangle of X^T X, [columns][columns]
  alignas(kCacheLine) std::mutex mutex_;      // with all else that changes at every batch
  Turnstile turnstile_;
  State state_;
};

}  // namespace lucid_fx::observe
