#include "models/bert/library_runs.h"

#include <cmath>
#include <limits>

#include "ops/torch/gemm/matmul.h"

namespace seqfuse::models::bert {
namespace {

using at::Tensor;

// q, k or v by group and head: [groups, heads, length, d], a view.
Tensor part_of(const LayerRun& run, int64_t part) {
  return run.of(Op::bias0_split)
      .view({run.rows.groups, run.rows.length, 3, run.config.num_heads, run.config.head_dim()})
      .select(2, part)
      .transpose(1, 2);
}

Tensor scores_under(const LayerRun& run, const Tensor& added) {
  const double scale = 1 / std::sqrt(static_cast<double>(run.config.head_dim()));
  const Tensor q = part_of(run, 0), k = part_of(run, 1).transpose(-2, -1);
  const int64_t length = run.rows.length, heads = run.config.num_heads;
  Tensor all = at::empty({run.rows.groups, heads, length, length}, q.options());
  for (int64_t g = 0; g < run.rows.groups; ++g) {
    Tensor of_group = all[g];
    if (added.defined()) {
      const Tensor mask = added[added.size(0) == 1 ? 0 : g].expand({heads, length, length});
      at::baddbmm_out(of_group, mask, q[g], k[g], 1, scale);
    } else {
      at::baddbmm_out(of_group, of_group, q[g], k[g], 0, scale);
    }
  }
  return all;
}

Tensor product_bias_residual(const Tensor& x, const Tensor& weight, const Tensor& bias,
                             const Tensor& residual) {
  Tensor y = at::empty(residual.sizes(), residual.options());
  ops::matmul_into(y, x, weight.t(), {.c = residual, .bias = bias});
  return y;
}

}  // namespace

Tensor scores(const LayerRun& run) {
  return scores_under(run, {});
}

Tensor masked_scores(const LayerRun& run) {
  const Tensor& seen = run.dense_mask;
  const Tensor added =
      at::zeros(seen.sizes(), run.input.options())
          .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
  return scores_under(run, added);
}

Tensor values(const LayerRun& run) {
  const Tensor v = part_of(run, 2);
  Tensor all = at::empty(v.sizes(), v.options());
  for (int64_t g = 0; g < run.rows.groups; ++g) {
    Tensor of_group = all[g];
    at::bmm_out(of_group, run.of(Op::softmax)[g], v[g]);
  }
  return all;
}

Tensor values_as_rows(const LayerRun& run) {
  const Tensor v = part_of(run, 2);
  Tensor rows = at::empty({run.rows.count(), run.config.hidden_size}, v.options());
  const Tensor by_head =
      rows.view({run.rows.groups, run.rows.length, run.config.num_heads, run.config.head_dim()})
          .transpose(1, 2);
  for (int64_t g = 0; g < run.rows.groups; ++g) {
    Tensor of_group = by_head[g];
    at::bmm_out(of_group, run.of(Op::softmax)[g], v[g]);
  }
  return rows;
}

Tensor product1_bias_residual(const LayerRun& run) {
  return product_bias_residual(run.of(Op::transpose), run.weights.gemm1, run.weights.bias1,
                               run.input);
}

Tensor product3_bias_residual(const LayerRun& run) {
  return product_bias_residual(run.of(Op::bias2_gelu), run.weights.gemm3, run.weights.bias3,
                               run.of(Op::layer_norm1));
}

Tensor product2_activation(const LayerRun& run) {
  return at::_addmm_activation(run.weights.bias2, run.of(Op::layer_norm1), run.weights.gemm2.t(), 1,
                               1, run.config.activation == Activation::gelu_tanh);
}

}  // namespace seqfuse::models::bert
