// Small samples side by side: one in each thread, begun in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "../observe/turns.h"
#include "session.h"

namespace lucid_fx::lanes {

// The caller's thread runs samples too, and it alone gives them.
class Lanes : public std::enable_shared_from_this<Lanes> {
 public:
  Lanes(std::shared_ptr<const Session> session, size_t threads);

  // Gives the next sample; this thread runs one where many are waiting. False when one has failed.
  bool put(Sample sample);

  // Runs what is waiting, unless a sample has failed, and lets the other threads go. The text of
  // the first in order that failed, empty for none.
  std::string finish();

  // Samples since number 0 that ran to their end.
  int64_t done() const { return done_; }

 private:
  struct Job {
    int64_t number;
    Sample sample;
  };

  void help();
  void run_next(std::unique_lock<std::mutex>& lock);  // which is open meanwhile
  void run(Job& job);

  const std::shared_ptr<const Session> session_;
  const size_t threads_;
  std::optional<observe::Order> order_;  // of the samples since the last finish
  std::atomic<int64_t> done_{0};
  std::atomic<size_t> running_{0};

  std::mutex mutex_;  // of all below
  std::condition_variable change_;
  std::deque<Job> waiting_;
  int64_t given_ = 0;
  size_t helpers_ = 0;
  std::map<int64_t, std::string> failures_;  // text by number
  bool ended_ = false;
};

}  // namespace lucid_fx::lanes
