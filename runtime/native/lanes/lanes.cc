#include "lanes.h"

#include <exception>
#include <thread>
#include <utility>

#include "../helpers.h"

namespace lucid_fx::lanes {
namespace {

constexpr size_t kAhead = 2;  // samples waiting for each thread, so that none waits for the next

}  // namespace

Lanes::Lanes(std::shared_ptr<const Session> session, size_t threads)
    : session_(std::move(session)), threads_(threads), order_(std::in_place) {}

bool Lanes::put(Sample sample) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!failures_.empty()) return false;
  if (given_ == 0) {
    done_ = 0;
    ended_ = false;
  }
  waiting_.push_back({given_++, std::move(sample)});
  if (helpers_ + 1 < threads_) {
    ++helpers_;
    run_in_helper([self = shared_from_this()] { self->help(); });
  }
  change_.notify_all();
  if (waiting_.size() >= kAhead * threads_) run_next(lock);
  return failures_.empty();
}

std::string Lanes::finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!waiting_.empty()) run_next(lock);
  ended_ = true;
  change_.notify_all();
  while (running_ != 0) {  // for the length of a small sample: sleeping takes longer
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  const std::string failure = failures_.empty() ? "" : failures_.begin()->second;
  failures_.clear();
  given_ = 0;
  order_.emplace();
  return failure;
}

void Lanes::help() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    change_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
    if (waiting_.empty()) break;
    run_next(lock);
  }
  --helpers_;
}

void Lanes::run_next(std::unique_lock<std::mutex>& lock) {
  Job job = std::move(waiting_.front());
  waiting_.pop_front();
  ++running_;
  lock.unlock();
  run(job);
  lock.lock();
  --running_;
}

void Lanes::run(Job& job) {
  order_->begin(job.number);
  try {
    session_->run(job.sample);
    ++done_;
  } catch (const std::exception& error) {
    order_->give_up(job.number);
    const std::lock_guard<std::mutex> lock(mutex_);
    failures_[job.number] = error.what();
    waiting_.clear();
  }
  observe::Order::leave();
}

}  // namespace lucid_fx::lanes
