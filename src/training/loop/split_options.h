// Converts gin classes to split options, the same for training and evaluation.
#pragma once

#include <vector>

#include "config/args.h"
#include "data/batch/split.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::training {

// Throws UsageError for an unknown split or truncation.
data::SplitOptions split_options(const config::DatasetArgs& args, models::hstu::Task task);

// The windows for evaluations during training: test or validation, by evaluate_on.
const std::vector<data::Sample>& evaluation_samples(const config::DatasetArgs& args,
                                                    const data::Split& split);

}  // namespace seqfuse::training
