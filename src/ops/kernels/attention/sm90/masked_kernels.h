// The kernels for SM 9.0 of softmax attention under a mask.
#pragma once

#include "base/dtype.h"
#include "ops/kernels/attention/sm80/masked_parts.cuh"

namespace seqfuse::ops::attention::sm90 {

// Whether they take a problem: head_dim 40 to 64, and tensors of which maps can be made
// (common/sm90/tensor_map.h). The mask's step must divide the numbers of queries and keys.
bool takes_masked_forward(const sm80::MaskedArguments& args);
bool takes_masked_backward(const sm80::MaskedArguments& args);

// f16 or bf16.
cudaError_t masked_forward(const sm80::MaskedArguments& args, DType dtype, cudaStream_t stream);
// dq; dk and dv.
cudaError_t masked_backward_queries(const sm80::MaskedArguments& args, DType dtype,
                                    cudaStream_t stream);
cudaError_t masked_backward_keys(const sm80::MaskedArguments& args, DType dtype,
                                 cudaStream_t stream);

}  // namespace seqfuse::ops::attention::sm90
