// Products with what follows them, where a library computes both: cuBLAS and cuBLASLt, on the CPU ATen's.
#pragma once

#include <torch/types.h>

#include "models/bert/program.h"

namespace seqfuse::models::bert {

// By groups, so that neither q, k and v nor the rows of PV are copied.
at::Tensor scores(const LayerRun& run);          // QK
at::Tensor masked_scores(const LayerRun& run);   // QK, mask: - infinity is added by the product
at::Tensor values(const LayerRun& run);          // PV
at::Tensor values_as_rows(const LayerRun& run);  // PV, transpose

// On a GPU.
at::Tensor product1_bias_residual(const LayerRun& run);  // gemm1, bias1+residual
at::Tensor product3_bias_residual(const LayerRun& run);  // gemm3, bias3+residual
at::Tensor product2_activation(const LayerRun& run);     // gemm2, bias2+GELU with tanh or ReLU

}  // namespace seqfuse::models::bert
