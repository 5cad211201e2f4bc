// The checked arguments of HSTU attention, for both implementations.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>

#include "ops/kernels/attention/hstu_mask.h"
#include "ops/torch/checks.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {

// Integers are int64 and contiguous; q, k and v have last stride 1. Absent tensors are undefined.
// Offsets are int32 if both were given so and a CUDA kernel reads them.
struct HstuAttentionInputs {
  Tensor q, k, v, q_offsets, k_offsets;
  Tensor num_contexts, num_targets, position_bias, time_bias, timestamps, request_times;
  double alpha;
  int64_t scaling_seqlen;
  HstuMask mask;
  int64_t max_seqlen;  // of the keys, at most their rows; 0: not given (CPU only)
};

inline HstuMask mask_of(const HstuAttentionOptions& options) {
  return {.causal = options.causal,
          .target_group_size = options.target_group_size,
          .max_attn_len = options.max_attn_len,
          .min_full_attn_seq_len = options.min_full_attn_seq_len};
}

// Runs the checks of hstu_attention. q, k and v are detached.
HstuAttentionInputs checked_attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Tensor& q_offsets, const Tensor& k_offsets,
                                             const HstuAttentionOptions& options);

// Whether the kernels of kernels/hstu_attention.h support this; always true on the CPU.
bool has_attention_kernel(const HstuAttentionInputs& in);

// Runs these kernels. out, dq, dk and dv have the shapes of q, k and v, any row and head stride.
void attention_into(const HstuAttentionInputs& in, const Tensor& out);

// The pre-activations of q, k and v, in their shapes: dq, dk and dv are then the gradients of
// these. CUDA only; undefined: none.
struct BeforeSilu {
  Tensor q, k, v;
  // Outputs: sums of dq, dk and dv over tokens, [H d], float32, contiguous, added in any order. All
  // three undefined: not wanted; required for deterministic sums.
  Tensor total_dq, total_dk, total_dv;
};
// Which of the gradients of position_bias and time_bias are wanted. With neither, their kernels do
// not run.
using WantedBiases = std::array<bool, 2>;
// The gradients of position_bias and time_bias; undefined if absent or not wanted.
std::pair<Tensor, Tensor> attention_gradients_into(const HstuAttentionInputs& in,
                                                   const Tensor& dout, const Tensor& dq,
                                                   const Tensor& dk, const Tensor& dv,
                                                   WantedBiases wanted,
                                                   const BeforeSilu& before = {});

// By matrix products over padded sequences, on any device; biases on CUDA only. Memory beyond the
// padded q, k, v and out: a few times kScoreBytes (or the scores of one sequence), for any batch,
// since the backward pass recomputes scores. Exactness: T2.
Tensor attention_by_matmul(const HstuAttentionInputs& in);

// The gradients of q, k, v, position_bias and time_bias; the last two undefined if absent or not
// wanted.
struct HstuAttentionGradients {
  Tensor q, k, v, position_bias, time_bias;
};
HstuAttentionGradients attention_gradients_by_matmul(const HstuAttentionInputs& in,
                                                     const Tensor& dout,
                                                     WantedBiases wanted = {true, true});

}  // namespace seqfuse::ops
