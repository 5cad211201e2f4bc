#include "ops/kernels/norm/layer_norm.h"

#include "ops/kernels/norm/layer_norm_stream.cuh"
#include "ops/kernels/step/make_dropout_mask.h"

namespace seqfuse::ops {

int64_t layer_norm_backward_partials(int64_t rows, int64_t dim) {
  return cuda::norm_backward_partials<false>(rows, dim);
}

cudaError_t layer_norm_forward_cuda(const LayerNormParams& params, DType dtype,
                                    cudaStream_t stream) {
  const cuda::NormForward norm{.x = params.x,
                               .u = nullptr,
                               .weight = params.weight,
                               .bias = params.bias,
                               .y = params.y,
                               .mean = params.mean,
                               .rstd = params.rstd,
                               .rows = params.rows,
                               .dim = params.dim,
                               .x_stride = params.x_stride,
                               .u_stride = 0,
                               .y_stride = params.y_stride,
                               .eps = static_cast<float>(params.eps),
                               .mask = cuda::make_dropout_mask(0, 0)};
  return cuda::launch_norm_forward<false>(norm, dtype, stream);
}

cudaError_t layer_norm_backward_cuda(const LayerNormBackwardParams& params, DType dtype,
                                     cudaStream_t stream) {
  const cuda::NormBackward norm{.x = params.x,
                                .u = nullptr,
                                .pre_u = nullptr,
                                .residual = params.residual,
                                .weight = params.weight,
                                .bias = nullptr,
                                .mean = params.mean,
                                .rstd = params.rstd,
                                .dy = params.dy,
                                .dx = params.dx,
                                .du = nullptr,
                                .dweight = params.dweight,
                                .dbias = params.dbias,
                                .float_gradients = params.float_gradients,
                                .workspace = params.workspace,
                                .rows = params.rows,
                                .dim = params.dim,
                                .x_stride = params.x_stride,
                                .u_stride = 0,
                                .pre_u_stride = 0,
                                .residual_stride = params.residual_stride,
                                .dy_stride = params.dy_stride,
                                .dx_stride = params.dx_stride,
                                .du_stride = 0,
                                .mask = cuda::make_dropout_mask(0, 0)};
  return cuda::launch_norm_backward<false>(norm, dtype, stream);
}

}  // namespace seqfuse::ops
