// Learning rate by step.
#pragma once

#include <cstdint>

#include "config/args.h"

namespace seqfuse::training {

// step counts from 0. Linear warm-up to args.learning_rate over warmup_steps (the first step
// already learns), then constant, or half a cosine that reaches min_learning_rate at total_steps.
double learning_rate_at(const config::OptimizerArgs& args, int64_t step, int64_t total_steps);

}  // namespace seqfuse::training
