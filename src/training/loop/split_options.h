// From the gin classes to the options of the split, the same for training and for evaluation.
#pragma once

#include <vector>

#include "config/args.h"
#include "data/batch/split.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::training {

// Throws UsageError on an unknown split or truncation.
data::SplitOptions split_options(const config::DatasetArgs& args, models::hstu::Task task);

// What evaluations during training use: the split's test or validation windows, by evaluate_on.
const std::vector<data::Sample>& evaluation_samples(const config::DatasetArgs& args,
                                                    const data::Split& split);

}  // namespace seqfuse::training
