// How native code spreads its work: over a session's threads, over threads of its own, or not.
//
// Tasks are cut by the size of the data, never by the number of threads, so that any schedule gives
// the same bits.
#pragma once

#include <cstddef>

namespace lucid_fx {

// Calls task(argument, i) for 0 <= i < tasks, in any order, possibly on several threads.
class Parallel {
 public:
  virtual void run(size_t tasks, void (*task)(void*, size_t), void* argument) const = 0;

 protected:
  ~Parallel() = default;
};

class Serial final : public Parallel {
 public:
  void run(size_t tasks, void (*task)(void*, size_t), void* argument) const override {
    for (size_t i = 0; i < tasks; ++i) task(argument, i);
  }
};

// Threads that live as long as one call, for callers without a pool.
class Threads final : public Parallel {
 public:
  explicit Threads(size_t count) : count_(count) {}
  void run(size_t tasks, void (*task)(void*, size_t), void* argument) const override;

 private:
  size_t count_;
};

// The same with a callable, body(i). It must not throw.
template <class Body>
void parallel_for(const Parallel& parallel, size_t tasks, const Body& body) {
  if (tasks == 1) return body(0);
  parallel.run(
      tasks, [](void* b, size_t i) { (*static_cast<const Body*>(b))(i); },
      const_cast<Body*>(&body));
}

}  // namespace lucid_fx
