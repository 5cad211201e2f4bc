// Failed allocations: detects them and explains them.
#pragma once

#include <torch/types.h>

#include <exception>
#include <string>

#include "config/roots.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::training {

// Host (std::bad_alloc, torch's allocator) or GPU (torch's allocator, CUDA, cuBLAS).
bool is_out_of_memory(const std::exception& error);

// An error's message without torch's stack trace; for a failed allocation, the requested size and
// how much memory there is.
std::string message_of(const std::exception& error);

// How to make a training step smaller: first, as flags, what a resumed run may change; then what
// only a new run may.
std::string how_to_make_steps_smaller(const config::Config& config, models::hstu::Task task,
                                      at::Device device);
// The same for evaluations.
std::string how_to_make_evaluations_smaller(const config::TrainerArgs& args);
// The same for a model's memory before the first step.
std::string how_to_make_models_smaller(const config::Config& config);

// Returns memory cached by torch's allocator to the GPU; does nothing on the CPU.
void release_cached_memory(at::Device device);

}  // namespace seqfuse::training
