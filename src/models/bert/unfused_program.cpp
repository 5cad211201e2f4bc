// Each operator alone, by plain ATen.
#include <cmath>
#include <limits>

#include "models/bert/program.h"

namespace seqfuse::models::bert {
namespace {

using at::Tensor;

// Part `part` (q, k or v) of qkv by head: [groups, heads, length, d].
Tensor by_head(const LayerRun& run, int64_t part) {
  const Tensor& qkv = run.of(Op::bias0_split);
  return qkv
      .view({run.rows.groups, run.rows.length, 3, run.config.num_heads, run.config.head_dim()})
      .select(2, part)
      .transpose(1, 2);
}

Tensor softmax_of_seen(const LayerRun& run) {
  const Tensor weights = at::softmax(run.of(Op::mask), -1);
  // A row that sees nothing is NaN.
  return weights.masked_fill_(run.dense_mask.any(-1, /*keepdim=*/true).logical_not_(), 0);
}

Tensor activated(const LayerRun& run) {
  const Tensor sum = run.of(Op::gemm2) + run.weights.bias2;
  if (run.config.activation == Activation::relu) return at::relu(sum);
  return at::gelu(sum, run.config.activation == Activation::gelu_erf ? "none" : "tanh");
}

Tensor normed(const LayerRun& run, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return at::layer_norm(x, {run.config.hidden_size}, weight, bias, run.config.layer_norm_eps);
}

}  // namespace

const Program& unfused() {
  static const Program program({
      {Op::gemm0, Op::gemm0,
       [](const LayerRun& run) { return at::linear(run.input, run.weights.gemm0); }},
      {Op::bias0_split, Op::bias0_split,
       [](const LayerRun& run) { return run.of(Op::gemm0) + run.weights.bias0; }},
      {Op::qk, Op::qk,
       [](const LayerRun& run) {
         const double scale = 1 / std::sqrt(static_cast<double>(run.config.head_dim()));
         return at::matmul(by_head(run, 0), by_head(run, 1).transpose(-2, -1)).mul_(scale);
       }},
      {Op::mask, Op::mask,
       [](const LayerRun& run) {
         return run.of(Op::qk).masked_fill(run.dense_mask.logical_not(),
                                           -std::numeric_limits<double>::infinity());
       },
       true},
      {Op::softmax, Op::softmax, softmax_of_seen, true},
      {Op::pv, Op::pv,
       [](const LayerRun& run) { return at::matmul(run.of(Op::softmax), by_head(run, 2)); }},
      {Op::transpose, Op::transpose,
       [](const LayerRun& run) {
         return run.of(Op::pv).transpose(1, 2).reshape({run.rows.count(), run.config.hidden_size});
       }},
      {Op::gemm1, Op::gemm1,
       [](const LayerRun& run) { return at::linear(run.of(Op::transpose), run.weights.gemm1); }},
      {Op::bias1_residual, Op::bias1_residual,
       [](const LayerRun& run) { return run.of(Op::gemm1) + run.weights.bias1 + run.input; }},
      {Op::layer_norm1, Op::layer_norm1,
       [](const LayerRun& run) {
         return normed(run, run.of(Op::bias1_residual), run.weights.norm1_weight,
                       run.weights.norm1_bias);
       }},
      {Op::gemm2, Op::gemm2,
       [](const LayerRun& run) { return at::linear(run.of(Op::layer_norm1), run.weights.gemm2); }},
      {Op::bias2_gelu, Op::bias2_gelu, activated},
      {Op::gemm3, Op::gemm3,
       [](const LayerRun& run) { return at::linear(run.of(Op::bias2_gelu), run.weights.gemm3); }},
      {Op::bias3_residual, Op::bias3_residual,
       [](const LayerRun& run) {
         return run.of(Op::gemm3) + run.weights.bias3 + run.of(Op::layer_norm1);
       }},
      {Op::layer_norm2, Op::layer_norm2,
       [](const LayerRun& run) {
         return normed(run, run.of(Op::bias3_residual), run.weights.norm2_weight,
                       run.weights.norm2_bias);
       }},
  });
  return program;
}

}  // namespace seqfuse::models::bert
