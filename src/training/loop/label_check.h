// Checks whether the labels of a ranking dataset can be learnt at all.
#pragma once

#include <string>

#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::training {

// Counts the labels of the training windows. Throws DataError if RankingArgs.label_threshold makes
// them all equal, which leaves nothing to learn. Returns a warning that names the tasks with only
// one label value (classes: if all labels are of one class), else ""; also "" for retrieval.
std::string check_training_labels(const data::Dataset& dataset, const data::Split& split,
                                  const models::hstu::ModelSpec& spec);

}  // namespace seqfuse::training
