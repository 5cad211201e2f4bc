// The arguments of HSTU attention after the checks, as both implementations take them.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>

#include "ops/kernels/attention/hstu_mask.h"
#include "ops/torch/checks.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {

// int64 and contiguous, but for q, k and v, whose last stride alone is 1. Undefined where absent.
// Offsets: int32 where both were given so and a kernel on a GPU reads them.
struct HstuAttentionInputs {
  Tensor q, k, v, q_offsets, k_offsets;
  Tensor num_contexts, num_targets, position_bias, time_bias, timestamps, request_times;
  double alpha;
  int64_t scaling_seqlen;
  HstuMask mask;
  int64_t max_seqlen;  // of the keys, at most their rows; 0: not given, which the CPU allows
};

inline HstuMask mask_of(const HstuAttentionOptions& options) {
  return {.causal = options.causal,
          .target_group_size = options.target_group_size,
          .max_attn_len = options.max_attn_len,
          .min_full_attn_seq_len = options.min_full_attn_seq_len};
}

// The checks of hstu_attention. q, k and v are detached.
HstuAttentionInputs checked_attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Tensor& q_offsets, const Tensor& k_offsets,
                                             const HstuAttentionOptions& options);

// Whether the kernels of kernels/hstu_attention.h run this: always on the CPU.
bool has_attention_kernel(const HstuAttentionInputs& in);

// By these kernels. out, dq, dk and dv have the shapes of q, k and v, any row and head stride.
void attention_into(const HstuAttentionInputs& in, const Tensor& out);

// What attention's arguments are silu of, like q, k and v: dq, dk and dv are then the gradients of
// these. CUDA only; undefined: none.
struct BeforeSilu {
  Tensor q, k, v;
  // The sums over tokens of dq, dk and dv are written to these, [H d] in float32 and contiguous;
  // added in any order. Undefined, all three: not wanted, as it must be where sums are to be
  // deterministic.
  Tensor total_dq, total_dk, total_dv;
};
// Whether the gradients of position_bias and time_bias are wanted. Without either, what they take
// is not run.
using WantedBiases = std::array<bool, 2>;
// The gradients of position_bias and time_bias; undefined where these are, or not wanted.
std::pair<Tensor, Tensor> attention_gradients_into(const HstuAttentionInputs& in,
                                                   const Tensor& dout, const Tensor& dq,
                                                   const Tensor& dk, const Tensor& dv,
                                                   WantedBiases wanted,
                                                   const BeforeSilu& before = {});

// By matrix products over padded sequences, on any device; biases on CUDA only. Memory beyond the
// padded q, k, v and out: a few times kScoreBytes (or the scores of one sequence), whatever the
// batch, since scores are computed again in the backward pass. Exactness: T2.
Tensor attention_by_matmul(const HstuAttentionInputs& in);

// The gradients of q, k, v, position_bias and time_bias; the last two undefined where these are, or
// not wanted.
struct HstuAttentionGradients {
  Tensor q, k, v, position_bias, time_bias;
};
HstuAttentionGradients attention_gradients_by_matmul(const HstuAttentionInputs& in,
                                                     const Tensor& dout,
                                                     WantedBiases wanted = {true, true});

}  // namespace seqfuse::ops
