// Threads that stay when their work is done, and wait for more: to start and to end one takes as
// long as a small model runs.
#pragma once

#include <functional>

namespace lucid_fx {

// Runs `work`, which must not throw, in a thread of its own.
void run_in_helper(std::function<void()> work);

}  // namespace lucid_fx
