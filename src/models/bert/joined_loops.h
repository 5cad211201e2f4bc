// Neighbouring elementwise operators of a layer as one loop each, on the CPU: float32 and float64.
#pragma once

#include <torch/types.h>

#include "models/bert/program.h"

namespace seqfuse::models::bert {

// x + bias + residual: x and residual [rows, D], bias [D], all contiguous.
at::Tensor bias_and_residual(const at::Tensor& x, const at::Tensor& bias,
                             const at::Tensor& residual);

// mask and softmax of the scores [groups, heads, n, n], contiguous; seen: bool [1 or groups, 1, n, n]. Rows
// that see nothing are 0.
at::Tensor mask_and_softmax(const at::Tensor& scores, const at::Tensor& seen);

}  // namespace seqfuse::models::bert
