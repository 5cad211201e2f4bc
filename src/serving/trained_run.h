// A trained run, opened for use: its configuration, its dataset, and the model of one checkpoint.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "config/args.h"
#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "models/hstu/model_spec.h"
#include "models/hstu/ranking_model.h"
#include "models/hstu/retrieval_model.h"

namespace seqfuse::serving {

struct TrainedRun {
  std::filesystem::path path;
  config::Config config;
  std::shared_ptr<const data::Dataset> dataset;
  int64_t step = 0;  // of the checkpoint
  models::hstu::ModelSpec spec;
  // The one of spec.task; in evaluation mode.
  std::shared_ptr<models::hstu::RetrievalModel> retrieval;
  std::shared_ptr<models::hstu::RankingModel> ranking;

  data::Split split() const;
};

// checkpoint: "step_N", or "" for the newest. data: a dataset directory, or "" for the one the run
// was trained on. Throws DataError where a file is missing or damaged, or where the dataset has
// another vocabulary, other actions or no times, unlike the one the model was trained on.
TrainedRun open_trained_run(const std::filesystem::path& path, const std::string& checkpoint,
                            const std::string& data);

}  // namespace seqfuse::serving
