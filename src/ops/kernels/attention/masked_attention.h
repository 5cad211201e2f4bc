// Softmax attention under a mask in blocks (masks/block_mask_view.h).
//
//   s_ij   = scale <q_i, k_j> for the keys j that query i sees
//   lse_i  = log sum_j exp(s_ij)
//   out_i  = sum_j exp(s_ij - lse_i) v_j
//
// A query that sees no key has out 0, lse -infinity and gradient 0. With several heads of queries to
// one of keys (grouped heads), head h reads head h / (heads / key_heads) of k and v.
//
// Backward, from dout and, if not null, dlse:
//   p_ij   = exp(s_ij - lse_i),  delta_i = <dout_i, out_i> - dlse_i
//   ds_ij  = p_ij (<dout_i, v_j> - delta_i)
//   dq_i   = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i,  dv_j = sum_i p_ij dout_i
//
// T: f32 or f64 on the CPU, f16 or bf16 on CUDA. S, the type of sums, lse, dlse and delta: T on the
// CPU, f32 on CUDA.
//   q, out, dout, dq   T [batch, heads, queries, head_dim]; any strides, elements of a row adjacent
//   k, v, dk, dv       T [batch, key_heads, keys, head_dim]; likewise
//   lse, dlse, delta   S [batch, heads, queries], contiguous; CUDA: delta has room for two of them
// Sizes: any may be 0, except head_dim; heads is a multiple of key_heads. queries and keys are those
// of the mask; its batch is 1 or that of q. CUDA: head_dim is a multiple of 8, at most 128; rows are
// aligned to 16 bytes; scale is positive; SM 8.0 or newer.
//
// Unseen: keys that no query of a block sees may hold anything, NaN too; likewise queries that see
// no key of a block. Others must be finite, as a weight of 0 times infinity is NaN, but for this:
// Scores of -infinity, from products that overflow or elements that are infinite, have no weight and
// no gradient, as if they were not seen; nor has a query all of whose scores are -infinity, whose out
// is 0 and lse -infinity. On CUDA an infinite element of q or k may still make NaN of gradients in the
// blocks that list it; a product that overflows does not.
// Aliasing: outputs overlap nothing. Every element of them is written.
// Determinism: every sum has one order. A row of out and dq is the same bits for any number of
// threads, whatever other queries hold. Exactness: T2.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "masks/block_mask_view.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

// Strides in elements.
struct BatchedHeads {
  void* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
};

struct MaskedAttentionParams {
  masks::BlockMaskView mask;
  int64_t batch = 0, heads = 0, key_heads = 0, head_dim = 0;
  double scale = 1;
  BatchedHeads q, k, v;
  BatchedHeads out;     // written by forward, read by backward
  void* lse = nullptr;  // likewise

  // Backward only.
  BatchedHeads dout, dq, dk, dv;
  const void* dlse = nullptr;  // null: lse has no gradient
  void* delta = nullptr;       // workspace; CUDA: [2, batch, heads, queries]

  int64_t key_head(int64_t head) const { return head / (heads / key_heads); }
};

void masked_attention_forward_cpu(const MaskedAttentionParams& params, DType dtype);
void masked_attention_backward_cpu(const MaskedAttentionParams& params, DType dtype);
#ifdef SEQFUSE_CUDA_API
cudaError_t masked_attention_forward_cuda(const MaskedAttentionParams& params, DType dtype,
                                          cudaStream_t stream);
// The same, a warp for each query: for masks with few allowed pairs.
cudaError_t masked_attention_rows_forward_cuda(const MaskedAttentionParams& params, DType dtype,
                                               cudaStream_t stream);
cudaError_t masked_attention_backward_cuda(const MaskedAttentionParams& params, DType dtype,
                                           cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
