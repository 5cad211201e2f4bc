// The scalars of a training step: the factor of the gradients, whether to skip the update, and what
// the host reads later. They stay on the model's device, so nothing waits for them.
//
//   factor = scale / loss_scale      norm = norm factor      skip = norm is finite ? 0 : 1
//   factor = factor min(1, max_norm / norm), if there is a max_norm
//   loss_sum = loss_sum + step_loss      step_loss = 0
//   bad_step, bad_loss: of the first step whose loss is not finite, or, without loss scaling, norm
//
// Per-step values are in memory too, so that a CUDA graph can replay the rest.
//
// CPU and CUDA do the same operations: float32, loss_sum in float64. No pointer is null.
// Aliasing: none. Exactness: T1.
#pragma once

#include <cstdint>
#include <limits>

#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

// Sets the values at the start of a step.
struct StepStartParams {
  int64_t* step_to;
  float* scale_to;
  float* learning_rate_to;
  int64_t step;
  float scale;
  float learning_rate;
};

struct StepScalarsParams {
  double* loss_sum;
  float* step_loss;   // of this step
  float* norm;        // in: of the gradients, before factor
  int64_t* bad_step;  // -1: none so far
  int64_t* bad_loss;  // 1: the loss was not finite
  const float* loss_scale;
  float* factor;
  float* skip;
  const int64_t* step;
  const float* scale;
  float max_norm;    // 0: none
  bool scales_loss;  // then a norm that is not finite is no error
};

// Runs on the CPU, or in a single-thread kernel on a GPU.
constexpr void step_start(const StepStartParams& p) {
  *p.step_to = p.step;
  *p.scale_to = p.scale;
  *p.learning_rate_to = p.learning_rate;
}

constexpr void step_scalars(const StepScalarsParams& p) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const auto is_finite = [](float x) { return x >= -kLargest && x <= kLargest; };
  float factor = *p.scale / *p.loss_scale;
  const float norm = *p.norm * factor;
  if (p.max_norm > 0) {
    const float share = p.max_norm / norm;
    factor *= share > 1 ? 1 : share;
  }
  const bool bad_loss = !is_finite(*p.step_loss), bad_norm = !is_finite(norm);
  *p.norm = norm;
  *p.factor = factor;
  *p.skip = bad_norm ? 1 : 0;
  if (*p.bad_step < 0 && (bad_loss || (bad_norm && !p.scales_loss))) {
    *p.bad_step = *p.step;
    *p.bad_loss = bad_loss ? 1 : 0;
  }
  *p.loss_sum += static_cast<double>(*p.step_loss);
  *p.step_loss = 0;
}

inline void step_start_cpu(const StepStartParams& params) {
  step_start(params);
}
inline void step_scalars_cpu(const StepScalarsParams& params) {
  step_scalars(params);
}

#ifdef SEQFUSE_CUDA_API
// Enqueue on the stream of the current device; no allocation, no synchronisation.
cudaError_t step_start_cuda(const StepStartParams& params, cudaStream_t stream);
cudaError_t step_scalars_cuda(const StepScalarsParams& params, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
