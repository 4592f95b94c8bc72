#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace lucid_fx {

void Threads::run(size_t tasks, void (*task)(void*, size_t), void* argument) const {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < tasks;) task(argument, i);
  };
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < std::min(count_, tasks); ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace lucid_fx
