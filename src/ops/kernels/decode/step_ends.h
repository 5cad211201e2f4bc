// The first and the last kernels of a decoding step on a GPU: ids to hidden states, and logits to ids.
//
// T: float16 or bfloat16. A step's ids and lengths stay on the device, so that steps follow each other
// without the host.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/philox.h"
#include "ops/kernels/common/cuda_api.h"
#include "ops/kernels/common/host_device.h"
#include "ops/kernels/decode/step_rule.h"

namespace seqfuse::ops {

// Rows of the embedding, and the angles of attention in float64, rounded to T.
struct BeginStepParams {
  const void* embedding = nullptr;      // T [vocabulary, hidden_size]
  const int64_t* ids = nullptr;         // [batch]; a negative id counts as 0
  const int64_t* lengths = nullptr;     // [batch]: tokens of each text so far
  const double* frequencies = nullptr;  // [rotary_dims / 2]
  void* hidden = nullptr;               // T [batch, hidden_size]
  void* angles = nullptr;               // T [batch, 2, 2, rotary_dims / 2] (step_attention.h)
  int64_t batch = 0, hidden_size = 0, rotary_dims = 0;
  StepRule rule;
  bool early = true;  // SM 9.0: starts while the launch before it in the stream runs
};

// Stands for the next id if the logit of token `id` is NaN. A negative number that names the token: the host may
// look only after the next step has overwritten the logits.
SEQFUSE_HOST_DEVICE constexpr int64_t marked_nan(int64_t id) {
  return -1 - id;
}
// The token, from the mark.
SEQFUSE_HOST_DEVICE constexpr int64_t token_of_nan(int64_t mark) {
  return -1 - mark;
}

// ids[b]: the id of row b's largest logit, the lowest of equal ones; marked_nan(id) if logits are NaN,
// the first of them that of `id`. lengths[b] grows by active[b]. recent, if it is wanted: the ids of the last two steps, those of step
// steps[b] in row steps[b] % 2; then steps[b] grows by 1.
struct EndStepParams {
  const void* logits = nullptr;     // T [batch, vocabulary], 16-byte aligned
  int64_t* ids = nullptr;           // [batch]
  int64_t* lengths = nullptr;       // [batch]
  const int64_t* active = nullptr;  // [batch], 0 or 1
  int64_t* recent = nullptr;        // [2, batch], or null
  int64_t* steps = nullptr;         // [batch], or null with recent
  int64_t batch = 0, vocabulary = 0;
  bool early = true;  // SM 9.0: starts while the launch before it in the stream runs
};

// points[b]: uniform in [0, 1), the draw number counts[b] of Philox{seed, texts[b]}.
struct DrawParams {
  const int64_t* texts = nullptr;   // [batch]
  const int64_t* counts = nullptr;  // [batch]
  double* points = nullptr;         // [batch]
  uint64_t seed = 0;
  int64_t batch = 0;
};

SEQFUSE_HOST_DEVICE double point_of(const DrawParams& params, int64_t row) {
  const auto words = Philox{params.seed, static_cast<uint64_t>(params.texts[row])}(
      static_cast<uint64_t>(params.counts[row]));
  const uint64_t bits = ((uint64_t{words[0]} << 32) | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

#ifdef SEQFUSE_CUDA_API
cudaError_t begin_step_cuda(const BeginStepParams& params, DType dtype, cudaStream_t stream);
cudaError_t end_step_cuda(const EndStepParams& params, DType dtype, cudaStream_t stream);
cudaError_t draw_cuda(const DrawParams& params, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
