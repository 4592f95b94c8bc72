// How the functions of c_api.h report failures.
#pragma once

#include <exception>
#include <string>

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

}  // namespace lucid_fx
