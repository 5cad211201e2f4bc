// The gate of an HSTU layer: dropout(u * layer_norm(o)), in one pass over its inputs.
//
//   l = (o - mean) rstd w + b      y = u l m      m: dropout factors, 0 or 1 / (1 - p)
//
// Backward: du = dy m l, then the layer norm's backward pass with dl = dy m u. m is drawn again,
// not stored.
//
// T: float32 or float64 on the CPU; float32, float16 and bfloat16 on CUDA. S, the statistics and
// the arithmetic: float64 where T is float64, else float32. rows = 0 is allowed; dim is at least 1.
// m is that of dropout.h over the [rows, dim] elements in order, whatever the strides.
//
// Aliasing: y may be o or u; d_o may be dy; no other outputs may overlap anything.
// Determinism: the same bits for any number of threads, and from run to run on the same GPU.
// Exactness: T2, sums over a row and over rows are re-associated.
// Errors: the binding checks shapes, dtypes and 0 <= p < 1. CUDA: cudaErrorInvalidValue for another
// dtype.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"
#include "ops/kernels/step/seed.h"

namespace seqfuse::ops {

struct LayerNormGateParams {
  const void* o;       // T [rows, dim]
  const void* u;       // T [rows, dim]
  const void* weight;  // T [dim]; null: ones
  const void* bias;    // T [dim]; null: zeros
  void* y;             // T [rows, dim]
  void* mean;          // S [rows]
  void* rstd;          // S [rows]
  int64_t rows, dim;
  int64_t o_stride, u_stride, y_stride;  // elements from row to row
  double eps;
  double dropout;  // p; 0: no dropout
  Seed seed;
};

struct LayerNormGateBackwardParams {
  const void* o;       // T [rows, dim]
  const void* u;       // T [rows, dim]
  const void* weight;  // T [dim]; null: ones
  const void* bias;    // T [dim]; null: zeros
  const void* mean;    // S [rows], of the forward pass
  const void* rstd;    // S [rows], of the forward pass
  const void* dy;      // T [rows, dim]
  void* d_o;           // T [rows, dim]
  void* du;            // T [rows, dim]
  void* dweight;       // T [dim]; null with dbias: neither is computed
  void* dbias;         // T [dim]
  float* workspace;    // CUDA, with dweight: [layer_norm_gate_backward_partials(rows, dim), 2, dim]
  int64_t rows, dim;
  int64_t o_stride, u_stride, dy_stride, d_o_stride, du_stride;
  double dropout;
  Seed seed;
  // CUDA only: u = silu(pre_u), and du becomes the gradient of pre_u, T [rows, dim]. Null: of u.
  const void* pre_u = nullptr;
  int64_t pre_u_stride = 0;
  bool float_gradients = false;  // CUDA only: dweight and dbias are float32
};

void layer_norm_gate_forward_cpu(const LayerNormGateParams& params, DType dtype);
void layer_norm_gate_backward_cpu(const LayerNormGateBackwardParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// Enqueue on the stream of the current device; no allocation, no synchronisation.
cudaError_t layer_norm_gate_forward_cuda(const LayerNormGateParams& params, DType dtype,
                                         cudaStream_t stream);
cudaError_t layer_norm_gate_backward_cuda(const LayerNormGateBackwardParams& params, DType dtype,
                                          cudaStream_t stream);
// Rows of the backward pass's workspace on the current device.
int64_t layer_norm_gate_backward_partials(int64_t rows, int64_t dim);
#endif

}  // namespace seqfuse::ops
