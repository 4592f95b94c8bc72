// Samples that run side by side, each in a thread of its own, pass every observer in their order:
// moving averages and growing histograms depend on it.
#pragma once

#include <atomic>
#include <cstdint>

namespace lucid_fx::observe {

// The samples of one calibration, numbered from 0.
class Order {
 public:
  Order();
  // From here on the calling thread runs this sample. At most 2^32 of them.
  void begin(int64_t sample);
  // No sample from this one on passes every observer any more: nobody may wait for it.
  void give_up(int64_t sample);
  // The calling thread runs no sample of any order.
  static void leave();

 private:
  friend class Turnstile;
  bool hopeless(int64_t ticket) const;

  const int64_t first_;            // its tickets are those of no other order
  std::atomic<int64_t> given_up_;  // a ticket
};

// Stands at every observer. A thread without a sample passes at any time.
class Turnstile {
 public:
  // Waits until the sample before this thread's has left. Throws when that will not happen.
  void enter();
  void leave();

 private:
  std::atomic<int64_t> left_{-1};  // the last ticket
};

}  // namespace lucid_fx::observe
