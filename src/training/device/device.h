// Which device a run trains on, and how its arithmetic is set up.
#pragma once

#include <torch/types.h>

#include <string>

#include "config/args.h"

namespace seqfuse::training {

// device: auto, cpu or cuda. auto takes a GPU that the kernels run on, if there is one. required_sm
// ("8.0"; empty: any) refuses every other GPU. index: of the GPU, for one process of several. Says
// what it found in the log. Throws UsageError where there is no GPU or none in this build, Error
// where the GPU does not fit.
at::Device choose_device(const std::string& device, const std::string& required_sm, int index = 0);

// TF32 and deterministic algorithms, for the whole process. Must be called before the GPU is used.
void set_arithmetic(at::Device device, const config::TrainerArgs& args);

}  // namespace seqfuse::training
