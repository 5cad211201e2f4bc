// HSTU attention over jagged sequences: SiLU in place of softmax, several masks, relative bias.
//
//   s_ij  = alpha <q_i, k_j> + position_bias[(N - 1) + j - i] + time_bias[bucket(t_{i+1} - t_j)]
//   out_i = 1/S sum_j M_ij silu(s_ij) v_j
//
// Row i of a sequence with n_q queries and n_k keys has position n_k - n_q + i among the keys
// (n_q <= n_k); i and j above are positions among the keys. Masked pairs contribute nothing; a
// query without a valid key yields a row of zeros.
//
// Mask (c contexts, t targets in groups of g, hend = n_k - t, window w, F):
//   i < c            : j < hend (all context and history, never targets)
//   else             : j <= i; if i and j are both targets, of the same group;
//                      if w > 0: id(i) - id(j) <= w, id(p) = max(0, p - c + 1), except rows
//                      i >= hend - F where F > 0, which see everything before them
//   not causal       : |id(i) - id(j)| in the window's rule, no j <= i; contexts also see targets
//
// Time buckets: bucket(x) = min(floor(ln(max(|x|, 1)) / 0.301), num_time_buckets - 1), where the
// logarithm and the quotient are evaluated in float64. (Trainers with a float32 logarithm put a few
// differences at the edge of a bucket into its neighbour.) Timestamps are exact if a sequence spans
// less than 2^53 units. t_{n} is request_times[b], or t_{n-1} if that is null.
//
// T: f32 or f64 on the CPU, f16 or bf16 on CUDA. W: T on the CPU, f32 on CUDA.
//   q, out, dout, dq           T [Tq, H, d]; any row and head stride, in elements; last stride 1
//   k, v, dk, dv               T [Tk, H, d]; strides as above
//   q_offsets, k_offsets       int64 [B + 1]; from 0, non-decreasing; CUDA: or int32, both of them
//   num_contexts, num_targets  int64 [B]; null: 0 everywhere; c + t <= n_k
//   position_bias              W [2N - 1]; may be null; N >= the longest n_k
//   time_bias                  W [buckets]; may be null; needs timestamps
//   d_position_bias            W [2N - 1]
//   d_time_bias                W [buckets]
//   timestamps                 int64 [Tk]; may be null; any order
//   request_times              int64 [B]; may be null
//
// Outputs may not overlap inputs. Every element of out, dq, dk and dv is written, and nothing else.
// Results do not depend on the number of threads. The torch binding checks arguments. It does not
// wait for a GPU, so kernels check the values of offsets and counts there: invalid ones fail a
// device assertion with a message, the next synchronising call returns cudaErrorAssert, and the
// process cannot use the GPU any more.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/attention/hstu_mask.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

// One [T, H, d] tensor; strides in elements.
struct JaggedHeads {
  void* data = nullptr;
  int64_t row_stride = 0, head_stride = 0;
};

struct HstuAttentionParams {
  int64_t batch = 0, heads = 0, head_dim = 0;
  JaggedHeads q, k, v;  // read only
  JaggedHeads out;      // written by forward, not used by backward
  const int64_t* q_offsets = nullptr;
  const int64_t* k_offsets = nullptr;

  double alpha = 1;
  int64_t scaling_seqlen = 1;  // S
  HstuMask mask;
  const int64_t* num_contexts = nullptr;
  const int64_t* num_targets = nullptr;

  const void* position_bias = nullptr;
  int64_t position_bias_size = 0;  // 2N - 1
  const void* time_bias = nullptr;
  int64_t num_time_buckets = 0;
  const int64_t* timestamps = nullptr;
  const int64_t* request_times = nullptr;

  // CUDA only.
  int64_t total_queries = 0, total_keys = 0;  // Tq, Tk
  int64_t max_seqlen = 0;                     // at least the longest n_k
  bool int32_offsets = false;                 // q_offsets and k_offsets point to int32_t
  void* workspace = nullptr;                  // ..._workspace_bytes() bytes, 256-byte aligned
};

struct HstuAttentionBackwardParams {
  HstuAttentionParams forward;
  JaggedHeads dout;  // read only
  JaggedHeads dq, dk, dv;
  // Null if the bias is null or its gradient is not wanted.
  void* d_position_bias = nullptr;  // [2N - 1]
  void* d_time_bias = nullptr;      // [buckets]
  // CPU only: [batch * heads, 2N - 1 + buckets] in the tensors' dtype; null iff both gradients are.
  // Bias gradients per (sequence, head), summed in that order into d_position_bias and d_time_bias.
  void* bias_workspace = nullptr;

  // CUDA only: no float atomics, so the same bits from run to run; 7 matrix products instead of 5.
  bool deterministic = false;
  // CUDA only: dq, dk and dv are multiplied by silu' of these, which match them in shape and dtype.
  // With null data they are not multiplied.
  JaggedHeads pre_q, pre_k, pre_v;  // read only
  // With pre_*, and not deterministic: sums of dq, dk and dv over tokens, [heads, head_dim] each,
  // float32, added in any order. All three null: not wanted.
  float *total_dq = nullptr, *total_dk = nullptr, *total_dv = nullptr;
};

// The CPU implementation. dtype: f32 or f64. Parallel over sequences, heads and blocks of queries.
void hstu_attention_forward_cpu(const HstuAttentionParams& params, DType dtype);

// Recomputes s; needs only q, k, v and dout. Parallel over sequences and heads.
void hstu_attention_backward_cpu(const HstuAttentionBackwardParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// On tensor cores: f16 or bf16; biases and their gradients float32. Sums are float32; weights are
// rounded to dtype before the product with v, scores are not. head_dim up to 256, batch up to
// 65535; fastest if head_dim is a multiple of 8 and rows and heads are 16-byte aligned. Forward is
// deterministic. max_seqlen and the totals bound grid and workspace; nothing is read back from the
// device.
// Size: int64_t, or a symbolic size.
template <class Size>
bool hstu_attention_cuda_takes(const Size& batch, const Size& head_dim, DType dtype) {
  return (dtype == DType::f16 || dtype == DType::bf16) && head_dim > 0 && head_dim <= 256 &&
         batch <= 65535;
}
// Checks offsets and counts in a separate kernel, for attention that does not run the kernels
// above. Reads q_offsets, k_offsets, counts, totals and max_seqlen.
cudaError_t hstu_attention_check_cuda(const HstuAttentionParams& params, cudaStream_t stream);
int64_t hstu_attention_forward_workspace_bytes(const HstuAttentionParams& params);
cudaError_t hstu_attention_forward_cuda(const HstuAttentionParams& params, DType dtype,
                                        cudaStream_t stream);
int64_t hstu_attention_backward_workspace_bytes(const HstuAttentionBackwardParams& params);
cudaError_t hstu_attention_backward_cuda(const HstuAttentionBackwardParams& params, DType dtype,
                                         cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
