// Eight groups. On a GPU a layer takes a kernel for each: four products, of which the first adds its bias
// itself, attention, and three that follow products.
#include <cmath>

#include "models/bert/program.h"
#include "ops/torch/encoder.h"

namespace seqfuse::models::bert {
namespace {

using at::Tensor;

Tensor product(const Tensor& x, const Tensor& weight) {
  return at::mm(x, weight.t());
}

// Attention without a mask by torch's own kernels; on a GPU cuDNN's is the fastest.
Tensor library_attention(const LayerRun& run, const Tensor& qkv, double scale) {
  const Rows& rows = run.rows;
  const auto parts =
      qkv.view({rows.groups, rows.length, 3, run.config.num_heads, run.config.head_dim()})
          .permute({2, 0, 3, 1, 4})
          .unbind();
  return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, false, scale)
      .transpose(1, 2)
      .reshape({rows.count(), run.config.hidden_size});
}

Tensor attention(const LayerRun& run) {
  const Tensor& qkv = run.of(Op::bias0_split);
  const double scale = 1 / std::sqrt(static_cast<double>(run.config.head_dim()));
  if (qkv.is_cuda() && run.rows.sees_all) return library_attention(run, qkv, scale);
  return ops::rows_attention(qkv, run.config.num_heads, run.rows.blocks, scale);
}

Tensor bias_and_activation(const LayerRun& run) {
  Tensor x = run.of(Op::gemm2);  // which nothing else reads
  ops::bias_activation_into(x, x, run.weights.bias2, run.config.activation);
  return x;
}

}  // namespace

const Program& fused() {
  static const Program program({
      {Op::gemm0, Op::bias0_split,
       [](const LayerRun& run) {
         return at::addmm(run.weights.bias0, run.input, run.weights.gemm0.t());
       }},
      {Op::qk, Op::transpose, attention},
      {Op::gemm1, Op::gemm1,
       [](const LayerRun& run) { return product(run.of(Op::transpose), run.weights.gemm1); }},
      {Op::bias1_residual, Op::layer_norm1,
       [](const LayerRun& run) {
         const LayerWeights& w = run.weights;
         return ops::add_norm(run.of(Op::gemm1), w.bias1, run.input, w.norm1_weight, w.norm1_bias,
                              run.config.layer_norm_eps);
       }},
      {Op::gemm2, Op::gemm2,
       [](const LayerRun& run) { return product(run.of(Op::layer_norm1), run.weights.gemm2); }},
      {Op::bias2_gelu, Op::bias2_gelu, bias_and_activation},
      {Op::gemm3, Op::gemm3,
       [](const LayerRun& run) { return product(run.of(Op::bias2_gelu), run.weights.gemm3); }},
      {Op::bias3_residual, Op::layer_norm2,
       [](const LayerRun& run) {
         const LayerWeights& w = run.weights;
         return ops::add_norm(run.of(Op::gemm3), w.bias3, run.of(Op::layer_norm1), w.norm2_weight,
                              w.norm2_bias, run.config.layer_norm_eps);
       }},
  });
  return program;
}

}  // namespace seqfuse::models::bert
