// lucid_fx.Observe, version 1: a tap that records statistics of its input.
//
//   Observe(X: float32 | float16 | float64) -> empty float32 tensor of shape [0]
//   key                 identity of the state, process-wide
//   kind                minmax, moving_average, per_channel, per_channel_moving_average, histogram
//   or
//                       gram (X^T X over the rows of the last axis)
//   bins                histogram only, default 2048
//   averaging_constant  moving averages only, default 0.01
//   ch_axis             per-channel kinds only, default 0
//
// Nobody consumes the output: onnxruntime runs custom nodes whose results are unused.
#pragma once

#include "ort_kernel.h"

namespace lucid_fx {

OpList observe_ops();  // one per element type

}  // namespace lucid_fx
