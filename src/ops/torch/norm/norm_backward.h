// Parameters of the norms' backward passes, and memory for the gradients of weight and bias.
#pragma once

#include <torch/types.h>

#include <array>

#include "ops/kernels/norm/layer_norm.h"
#include "ops/kernels/norm/layer_norm_gate.h"
#include "ops/torch/cuda.h"
#include "ops/torch/device_seeds.h"
#include "ops/torch/dispatch.h"

namespace seqfuse::ops {

// weight, bias: contiguous or undefined. Set their gradients with AffineGradients::attach_to.
inline LayerNormBackwardParams layer_norm_backward_params(const Tensor& x, const Tensor& weight,
                                                          const Tensor& mean, const Tensor& rstd,
                                                          const Tensor& dy, const Tensor& dx) {
  return {.x = x.const_data_ptr(),
          .weight = data_or_null(weight),
          .mean = mean.const_data_ptr(),
          .rstd = rstd.const_data_ptr(),
          .dy = dy.const_data_ptr(),
          .dx = dx.mutable_data_ptr(),
          .dweight = nullptr,
          .dbias = nullptr,
          .workspace = nullptr,
          .rows = x.size(0),
          .dim = x.size(1),
          .x_stride = x.stride(0),
          .dy_stride = dy.stride(0),
          .dx_stride = dx.stride(0)};
}

inline LayerNormGateBackwardParams layer_norm_gate_backward_params(
    const Tensor& o, const Tensor& u, const Tensor& weight, const Tensor& bias, const Tensor& mean,
    const Tensor& rstd, const Tensor& dy, const Tensor& d_o, const Tensor& du, double dropout,
    int64_t seed) {
  return {.o = o.const_data_ptr(),
          .u = u.const_data_ptr(),
          .weight = data_or_null(weight),
          .bias = data_or_null(bias),
          .mean = mean.const_data_ptr(),
          .rstd = rstd.const_data_ptr(),
          .dy = dy.const_data_ptr(),
          .d_o = d_o.mutable_data_ptr(),
          .du = du.mutable_data_ptr(),
          .dweight = nullptr,
          .dbias = nullptr,
          .workspace = nullptr,
          .rows = o.size(0),
          .dim = o.size(1),
          .o_stride = o.stride(0),
          .u_stride = u.stride(0),
          .dy_stride = dy.stride(0),
          .d_o_stride = d_o.stride(0),
          .du_stride = du.stride(0),
          .dropout = dropout,
          .seed = dropout > 0 ? kernel_seed(o, seed) : 0};
}

class AffineGradients {
 public:
  // x: [T, D], the norm's input. wanted: gradient of weight, of bias. The passes compute both or
  // neither, in x's dtype or, on a GPU only, in float32.
  AffineGradients(const Tensor& x, std::array<bool, 2> wanted, at::ScalarType type)
      : x_(x), wanted_(wanted) {
    if (!wanted[0] && !wanted[1]) return;
    weight_ = at::empty({x.size(1)}, x.options().dtype(type));
    bias_ = at::empty_like(weight_);
  }

  // Makes params' pass write them, and allocates memory for their parts. Must outlive the launch.
  template <class Params>
  void attach_to(Params& params) {
    if (!weight_.defined()) return;
    params.dweight = weight_.mutable_data_ptr();
    params.dbias = bias_.mutable_data_ptr();
    params.float_gradients = weight_.scalar_type() == at::kFloat;
#ifdef SEQFUSE_HAS_CUDA
    if (!x_.is_cuda()) return;
    workspace_ = at::empty({partials(params), 2, params.dim}, x_.options().dtype(at::kFloat));
    params.workspace = workspace_.mutable_data_ptr<float>();
#endif
  }

  // Undefined if not wanted.
  Tensor weight() const { return wanted_[0] ? weight_ : Tensor(); }
  Tensor bias() const { return wanted_[1] ? bias_ : Tensor(); }

 private:
#ifdef SEQFUSE_HAS_CUDA
  static int64_t partials(const LayerNormBackwardParams& params) {
    return layer_norm_backward_partials(params.rows, params.dim);
  }
  static int64_t partials(const LayerNormGateBackwardParams& params) {
    return layer_norm_gate_backward_partials(params.rows, params.dim);
  }
#endif

  Tensor x_;
  std::array<bool, 2> wanted_;
  Tensor weight_, bias_, workspace_;
};

// For shape functions: the shape of weight() or bias().
inline Tensor affine_gradient_shape(const Tensor& x, bool wanted) {
  return wanted ? empty_shape({x.sym_size(1)}, x.options()) : Tensor();
}

}  // namespace seqfuse::ops
