#include "helpers.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace lucid_fx {
namespace {

struct Pool {
  std::mutex mutex;
  std::condition_variable added;
  std::deque<std::function<void()>> work;
  size_t idle = 0;
};

// Never destroyed: its threads wait until the process ends. A forked process has none of them.
Pool*& pool() {
  static Pool* the = [] {
    pthread_atfork(nullptr, nullptr, [] { pool() = new Pool; });
    return new Pool;
  }();
  return the;
}

void help(Pool& from) {
  std::unique_lock<std::mutex> lock(from.mutex);
  while (true) {
    ++from.idle;
    from.added.wait(lock, [&] { return !from.work.empty(); });
    --from.idle;
    const std::function<void()> work = std::move(from.work.front());
    from.work.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace

void run_in_helper(std::function<void()> work) {
  Pool& to = *pool();
  const std::lock_guard<std::mutex> lock(to.mutex);
  to.work.push_back(std::move(work));
  if (to.work.size() > to.idle) {
    std::thread([&to] { help(to); }).detach();
  } else {
    to.added.notify_one();
  }
}

}  // namespace lucid_fx
