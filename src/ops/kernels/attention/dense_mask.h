// The mask of HSTU attention as a dense matrix, for attention by matrix products.
//
//   mask[b, i, j] = whether query i of sequence b sees key j      i < n_q, j < n_k
//                   false                                         elsewhere
//
// Query i has position n_k - n_q + i among the keys. The mask, contexts and targets:
// ops/kernels/attention/hstu_attention.h. Offsets and counts are int64 on the device of the mask.
// Deterministic. Errors: the binding checks shapes and dtypes.
#pragma once

#include "ops/kernels/attention/common/mask.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct DenseMaskParams {
  bool* mask;  // [B, max_len, max_len], contiguous
  attention::MaskOptions options;
  const int64_t* q_offsets;     // [B + 1]; null: every sequence has max_len queries and keys
  const int64_t* k_offsets;     // [B + 1]; null iff q_offsets is
  const int64_t* num_contexts;  // [B]; null: none
  const int64_t* num_targets;   // [B]; null: none
  int64_t batch, max_len;
};

namespace attention {

// Row i of sequence b.
SEQFUSE_HOST_DEVICE RowMask dense_row(const DenseMaskParams& p, int64_t b, int64_t i) {
  int64_t queries = p.max_len, keys = p.max_len;
  if (p.q_offsets) {
    queries = p.q_offsets[b + 1] - p.q_offsets[b];
    keys = p.k_offsets[b + 1] - p.k_offsets[b];
  }
  if (i >= queries) return {0, 0, 0, 0};
  const MaskedSequence sequence{static_cast<int>(keys),
                                static_cast<int>(p.num_contexts ? p.num_contexts[b] : 0),
                                static_cast<int>(p.num_targets ? p.num_targets[b] : 0)};
  return row_mask(p.options, sequence, static_cast<int>(keys - queries + i));
}

}  // namespace attention

void dense_mask_cpu(const DenseMaskParams& params);

#ifdef SEQFUSE_CUDA_API
// Enqueues on the stream of the current device; no allocation, no synchronisation. batch up to
// 65535.
cudaError_t dense_mask_cuda(const DenseMaskParams& params, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
