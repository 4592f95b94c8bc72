#pragma once

#include <stdexcept>

namespace lucid_fx {

// A caller's mistake: what() is one sentence for the user.
struct InvalidArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

}  // namespace lucid_fx
