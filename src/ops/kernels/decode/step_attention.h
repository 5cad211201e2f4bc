// Attention of one new token of each row over a ring of cached keys and values (kv_cache/rule.h), on a
// GPU, with rotary positions and the write of the token's own key and value.
//
// T: float16 or bfloat16.
//   qkv           T [batch, heads, 3, head_dim]: q, k and v, not rotated
//   keys, values  T [batch, heads, slots, head_dim]; keys are rotated to their token's true index
//   lengths       int64 [batch]: tokens before the new one, which is token t = lengths[b]
//   angles        T [batch, 2, 2, rotary_dims / 2]: cosines, then sines, of token t's true index, then
//                 of its position in the cache (step_ends.h)
//   out           T [batch, heads, head_dim]
// head_dim: a multiple of 4, at most 256; all pointers are 16-byte aligned.
//
// Scores and sums are float32; the result is rounded once. Rotations round to T after each operation.
// The order of sums depends on the slot alone, so results do not depend on the batch. Exactness: T2.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"
#include "ops/kernels/decode/step_rule.h"

namespace seqfuse::ops {

inline constexpr int64_t kMaxStepHeadDim = 256, kStepHeadDimGrain = 4;

struct StepAttentionParams {
  const void* qkv = nullptr;
  void *keys = nullptr, *values = nullptr;
  const int64_t* lengths = nullptr;
  const void* angles = nullptr;
  void* out = nullptr;
  void* workspace = nullptr;  // step_attention_workspace_bytes(); zeroed before the first use
  int64_t batch = 0, heads = 0, head_dim = 0, slots = 0, rotary_dims = 0;
  StepRule rule;
  bool early = true;  // SM 9.0: starts while the launch before it in the stream runs
};

#ifdef SEQFUSE_CUDA_API
// True if the current device has enough shared memory for a block with this head_dim.
bool step_attention_fits(int64_t head_dim);
int64_t step_attention_workspace_bytes(const StepAttentionParams& params);
// cudaErrorInvalidValue: a head_dim or dtype not named above, or one that does not fit.
cudaError_t step_attention_cuda(const StepAttentionParams& params, DType dtype,
                                cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
