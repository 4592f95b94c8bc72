#include "turns.h"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace lucid_fx::observe {
namespace {

constexpr int64_t kTickets = int64_t{1} << 32;  // of each order

// Neighbours are microseconds apart. Who waits longer sleeps.
constexpr int kYields = 1000;
constexpr std::chrono::microseconds kSleep(100);

struct Turn {
  const Order* order = nullptr;
  int64_t ticket = 0;
};

thread_local Turn turn;

int64_t next_first() {
  static std::atomic<int64_t> orders{0};
  return orders++ * kTickets;
}

}  // namespace

Order::Order() : first_(next_first()), given_up_(first_ + kTickets) {}

void Order::begin(int64_t sample) { turn = {this, first_ + sample}; }

void Order::leave() { turn = {}; }

void Order::give_up(int64_t sample) {
  const int64_t ticket = first_ + sample;
  int64_t lowest = given_up_;
  while (ticket < lowest && !given_up_.compare_exchange_weak(lowest, ticket)) {
  }
}

bool Order::hopeless(int64_t ticket) const { return ticket > given_up_; }

void Turnstile::enter() {
  if (turn.order == nullptr || turn.ticket % kTickets == 0) return;
  for (int tries = 0; left_.load(std::memory_order_acquire) != turn.ticket - 1; ++tries) {
    if (turn.order->hopeless(turn.ticket)) throw std::runtime_error("an earlier sample failed");
    if (tries < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
}

void Turnstile::leave() {
  if (turn.order != nullptr) left_.store(turn.ticket, std::memory_order_release);
}

}  // namespace lucid_fx::observe
