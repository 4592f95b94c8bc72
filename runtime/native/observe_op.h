// lucid_fx.Observe, version 1: a tap that records statistics of its input.
//
//   Observe(X: float32 | float16 | float64) -> empty float32 tensor of shape [0]
//   key                 identity of the state, process-wide
//   kind                minmax, moving_average, per_channel, per_channel_moving_average or
//   histogram bins                histogram only, default 2048 averaging_constant  moving averages
//   only, default 0.01 ch_axis             per-channel kinds only, default 0
//
// Nobody consumes the output: onnxruntime runs custom nodes whose results are unused.
#pragma once

#include "ort_abi.h"

namespace lucid_fx {

constexpr size_t kObserveOps = 3;  // one per element type

// The ops for CustomOpDomain_Add. `api` must stay alive, as the ops do, for the process.
const ort::CustomOp* observe_ops(const ort::Api* api);

}  // namespace lucid_fx
