// What this library gives to sessions.
#pragma once

#include "ort_kernel.h"

namespace lucid_fx {

// Throws where onnxruntime has not loaded this library yet: only then does it hand over its API.
void require_ops();

// Adds the ops of this library to a session's options.
ort::Status* add_ops(ort::SessionOptions* options);

}  // namespace lucid_fx
