// Flags and parameters that make a run need less memory, for messages.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "config/roots.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::training {

// How to make a training step smaller: first, as flags, what a resumed run may change; then what
// only a new run may.
std::string how_to_make_steps_smaller(const config::Config& config, models::hstu::Task task,
                                      at::Device device);
// The same for evaluations.
std::string how_to_make_evaluations_smaller(const config::TrainerArgs& args);
// The same for a model's memory before the first step.
std::string how_to_make_models_smaller(const config::Config& config);

}  // namespace seqfuse::training
