// The compiled kernels of products with SiLU, from which choose_config picks.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/kernels/gemm/gemm_silu.h"
#include "ops/kernels/gemm/gemm_silu_config.h"

namespace seqfuse::ops::gemm {

struct Variant {
  Config config;
  // Enqueues it. Requires gemm_silu_cuda_takes and m > 0. Errors: those of the CUDA runtime.
  cudaError_t (*launch)(const GemmSiluParams& params, DType dtype, cudaStream_t stream);
};

// The row that computes the problem on a device: see choose_config.
const Variant& choose_variant(const Problem& problem, int sm);

// A family's row.
const Variant& gemm_silu_sm80();
const Variant& gemm_silu_sm90();

}  // namespace seqfuse::ops::gemm
