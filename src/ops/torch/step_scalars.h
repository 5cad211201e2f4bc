// The scalars of a training step as tensors (kernels/step_scalars.h), for the engine only (not
// dispatcher operators).
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace seqfuse::ops {

// One element each, on one device.
struct StepScalars {
  // loss_scale: 1 without loss scaling.
  StepScalars(at::Device device, double loss_scale);

  at::Tensor loss_sum;            // float64: sum of losses since it was last set to 0
  at::Tensor step_loss;           // float32: sum over the step's batches so far
  at::Tensor norm;                // float32
  at::Tensor bad_step, bad_loss;  // int64: -1 and 0 so far
  at::Tensor loss_scale;          // float32
  at::Tensor factor, skip;        // float32
  at::Tensor step;                // int64
  at::Tensor scale;               // float32: of gradients, not counting loss scaling
  at::Tensor learning_rate;       // float32
};

// Sets step, scale and learning_rate. Call once per step, before finish_step.
void start_step(const StepScalars& scalars, int64_t step, double scale, double learning_rate);

// Call after a step's backward pass, with norm set to that of its gradients. max_norm 0: no limit.
// scales_loss: a norm that is not finite is no error.
void finish_step(const StepScalars& scalars, double max_norm, bool scales_loss);

}  // namespace seqfuse::ops
