// lucid_fx.MatMulInt4, version 1: Y = A * W + bias with weights of a few bits.
//
//   MatMulInt4(A: float32 | float16 [..., K], codes, scales, zero_points?, bias?) -> Y [..., N]
//   codes         uint8 [panels, bytes of a panel], see matmul/matmul.h
//   scales        float32, float16, bfloat16 or uint8 (UE4M3) [panels, blocks, 16]
//   zero_points   uint8 [panels, blocks, 16]; for the unsigned value types only
//   bias          float32 [N]
//   K, N          rows and columns of W
//   block_size    rows that share a scale: 16, 32, 64, 128 or 256
//   value         Q2F, Q2S, Q4F, Q4S, Q8F, Q8S, or U2, U4, U8 with zero points
//   compute       int8 (A is rounded to 8 bits block by block) or float32, default int8
//   global_scale  factor of all scales, default 1
//   layout        version of the packed layout: 1
//
// The packed operands are checked when the session is created, and used where they lie.
#pragma once

#include "ort_kernel.h"

namespace lucid_fx {

OpList matmul_ops();  // one per type of A

}  // namespace lucid_fx
