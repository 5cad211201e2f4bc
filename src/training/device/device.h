// Chooses the device of a run and sets up its arithmetic.
#pragma once

#include <torch/types.h>

#include <string>

#include "config/args.h"

namespace seqfuse::training {

// device: auto, cpu or cuda. auto uses a supported GPU if there is one. required_sm ("8.0"; empty:
// any) refuses every other GPU. index: of the GPU, one per process. Logs the result. Throws
// UsageError if there is no GPU or the build does not support one, Error if the GPU is not
// supported.
at::Device choose_device(const std::string& device, const std::string& required_sm, int index = 0);

// Sets TF32 and deterministic algorithms for the whole process. Call before the GPU is used.
void set_arithmetic(at::Device device, const config::TrainerArgs& args);

}  // namespace seqfuse::training
