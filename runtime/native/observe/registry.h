// All observers of the process, by key. Sessions and the C API share them.
#pragma once

#include <memory>
#include <string>

#include "observer.h"

namespace lucid_fx::observe {

// The observer with this key, made when there is none.
std::shared_ptr<Observer> acquire(const std::string& key);

// The observer with this key, or null.
std::shared_ptr<Observer> find(const std::string& key);

// Forgets every observer whose key starts with `prefix`. One that a live session still writes to is
// emptied instead, so that the session goes on under the same key.
void reset(const std::string& prefix);

// How many NaN and infinities the observers saw whose key starts with `prefix`.
int64_t nonfinite(const std::string& prefix);

}  // namespace lucid_fx::observe
