// What the functions of c_api.h share: how they check arguments and report failures.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "invalid_argument.h"

namespace lucid_fx {

std::string& last_error();  // of the calling thread

// Runs a body: 0, or 1 with the reason in last_error(). No exception may cross into C.
template <class Body>
int guarded(Body&& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return 1;
  }
}

// What find_kernels gave for `isa`, or a refusal.
template <class Kernels>
const Kernels& found(const Kernels* kernels, const char* isa) {
  if (kernels == nullptr) {
    throw InvalidArgument("this machine has no kernels '" + std::string(isa) + "'");
  }
  return *kernels;
}

}  // namespace lucid_fx
