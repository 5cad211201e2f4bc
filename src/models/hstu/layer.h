// One HSTU layer over jagged sequences, in both published forms.
//
// With x [T, D] (T: tokens of all sequences), H heads of head_dim d:
//   n = layer_norm(x)                           affine or not
//   [u | v | q | k] = silu(n W_uvqk + b_uvqk)   W_uvqk [D, 4 H d]; each part [T, H d], by heads
//   o_i = sum_j silu(alpha q_i.k_j + bias_ij) / S * M_ij * v_j       ops::hstu_attention
//   y = dropout(u * layer_norm(o))              over all heads together
//   out = x + y W_o + b_o                       W_o [H d, D]
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>

#include "models/common/init.h"
#include "models/hstu/model_spec.h"
#include "ops/torch/ops.h"

namespace seqfuse::models::hstu {

struct LayerOptions {
  int64_t hidden_size = 0, num_heads = 0, head_dim = 0;
  double dropout = 0, norm_epsilon = 1e-5;
  bool affine_norms = true;
  bool uvqk_bias = true, output_bias = false;
  double uvqk_std = 0;            // initial W_uvqk ~ N(0, std); 0: xavier_uniform
  double alpha = 1;               // scale of q k^T
  int64_t scaling_seqlen = 1;     // S
  int64_t target_group_size = 1;  // candidates per group
  int64_t max_attn_len = 0;       // local attention: how many earlier tokens; 0: off
  int64_t min_full_attn_seq_len = 0;
  int64_t bias_positions = 0;     // N: relative bias over 2 N - 1 distances; 0: none
  int64_t bias_time_buckets = 0;  // time buckets of the relative bias; 0: none
  // On a GPU in 16 bits: recompute in backward instead of keeping.
  bool recompute_input_layernorm = false, recompute_input_silu = false;

  // hstu: affine norms, alpha = d^-1/2, no relative bias.
  // hstu_research: plain norms, no uvqk bias, alpha = 1, relative bias by position and time, S = N.
  static LayerOptions of(const ModelSpec& spec);
};

// The jagged sequences that a stack of layers works on.
struct Sequences {
  at::Tensor offsets;  // int64 [B + 1], in tokens
  ops::OptionalTensor
      num_contexts;  // int64 [B]: tokens at the start that see all history; none: causal
  ops::OptionalTensor num_targets;    // int64 [B]: candidates at the end
  ops::OptionalTensor timestamps;     // int64 [T], with bias_time_buckets
  ops::OptionalTensor request_times;  // int64 [B]: the time after each sequence's last token
  int64_t max_seqlen = 0;             // at least the longest; needed on a GPU
};

class HstuLayer : public torch::nn::Module {
 public:
  HstuLayer(const LayerOptions& options, Initializer& init);

  // [T, D] -> [T, D], in x's dtype: weights are stored in float32 (or float64) and converted. The
  // dropout mask depends only on dropout_seed; no dropout outside training mode.
  at::Tensor forward(const at::Tensor& x, const Sequences& sequences, int64_t dropout_seed);

 private:
  LayerOptions options_;
  // Undefined if the options leave them out.
  at::Tensor input_norm_weight_, input_norm_bias_;    // [D]
  at::Tensor uvqk_weight_, uvqk_bias_;                // [D, 4 H d], [4 H d]
  at::Tensor output_norm_weight_, output_norm_bias_;  // [H d]
  at::Tensor output_weight_, output_bias_;            // [H d, D], [D]
  at::Tensor position_bias_, time_bias_;              // [2 N - 1], [buckets]
};

}  // namespace seqfuse::models::hstu
