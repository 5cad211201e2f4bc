// Failed allocations: how they are told from other errors, and what is said about them.
#pragma once

#include <torch/types.h>

#include <exception>
#include <string>

#include "config/roots.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::training {

// Of the host (std::bad_alloc, torch's allocator) or of a GPU (torch's allocator, CUDA, cuBLAS).
bool is_out_of_memory(const std::exception& error);

// What an error says, without torch's stack trace; of a failed allocation: what was tried and how
// much memory there is.
std::string message_of(const std::exception& error);

// What makes a training step smaller: first what a resumed run may change, as flags, then what
// only a new one may.
std::string how_to_make_steps_smaller(const config::Config& config, models::hstu::Task task,
                                      at::Device device);
// Likewise evaluations.
std::string how_to_make_evaluations_smaller(const config::TrainerArgs& args);
// Likewise what a model takes before the first step.
std::string how_to_make_models_smaller(const config::Config& config);

// Gives back to the GPU what torch's allocator keeps for later; nothing on the CPU.
void release_cached_memory(at::Device device);

}  // namespace seqfuse::training
