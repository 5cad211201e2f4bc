// The state that `seqfuse train` starts from.
#pragma once

#include <filesystem>
#include <string>

#include "data/dataset/dataset.h"
#include "models/hstu/model_spec.h"
#include "training/loop/trainer.h"

namespace seqfuse::cli {

// From the newest checkpoint of the run that is resumed (empty: a new run), or from the weights in
// load_directory (a checkpoint of another run; empty: none), or as the trainer is. Rows go where the
// dataset has their raw ids (training/checkpoint/grown_vocabulary.h). new_data: the run continues with
// another dataset than so far. Called by the first process alone. Throws DataError.
void start_weights(training::Trainer& trainer, const std::filesystem::path& resumed, bool new_data,
                   const std::string& load_directory, const data::Dataset& dataset,
                   const models::hstu::ModelSpec& spec);

}  // namespace seqfuse::cli
