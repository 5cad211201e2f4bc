#include "ops/kernels/norm/layer_norm_gate.h"

#include "ops/kernels/norm/layer_norm_stream.cuh"
#include "ops/kernels/step/make_dropout_mask.h"

namespace seqfuse::ops {

int64_t layer_norm_gate_backward_partials(int64_t rows, int64_t dim) {
  return cuda::norm_backward_partials<true>(rows, dim);
}

cudaError_t layer_norm_gate_forward_cuda(const LayerNormGateParams& params, DType dtype,
                                         cudaStream_t stream) {
  const cuda::NormForward norm{.x = params.o,
                               .u = params.u,
                               .weight = params.weight,
                               .bias = params.bias,
                               .y = params.y,
                               .mean = params.mean,
                               .rstd = params.rstd,
                               .rows = params.rows,
                               .dim = params.dim,
                               .x_stride = params.o_stride,
                               .u_stride = params.u_stride,
                               .y_stride = params.y_stride,
                               .eps = static_cast<float>(params.eps),
                               .mask = cuda::make_dropout_mask(params.dropout, params.seed)};
  return cuda::launch_norm_forward<true>(norm, dtype, stream);
}

cudaError_t layer_norm_gate_backward_cuda(const LayerNormGateBackwardParams& params, DType dtype,
                                          cudaStream_t stream) {
  const cuda::NormBackward norm{.x = params.o,
                                .u = params.u,
                                .pre_u = params.pre_u,
                                .residual = nullptr,
                                .weight = params.weight,
                                .bias = params.bias,
                                .mean = params.mean,
                                .rstd = params.rstd,
                                .dy = params.dy,
                                .dx = params.d_o,
                                .du = params.du,
                                .dweight = params.dweight,
                                .dbias = params.dbias,
                                .float_gradients = params.float_gradients,
                                .workspace = params.workspace,
                                .rows = params.rows,
                                .dim = params.dim,
                                .x_stride = params.o_stride,
                                .u_stride = params.u_stride,
                                .pre_u_stride = params.pre_u_stride,
                                .residual_stride = 0,
                                .dy_stride = params.dy_stride,
                                .dx_stride = params.d_o_stride,
                                .du_stride = params.du_stride,
                                .mask = cuda::make_dropout_mask(params.dropout, params.seed)};
  return cuda::launch_norm_backward<true>(norm, dtype, stream);
}

}  // namespace seqfuse::ops
