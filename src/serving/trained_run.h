// A trained run, opened for use: the model of one checkpoint, and what its ids mean.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset/dataset.h"
#include "data/dataset/typical_events.h"
#include "serving/lookup.h"
#include "serving/predictor.h"

namespace seqfuse::serving {

struct OpenOptions {
  std::string checkpoint;  // "step_N", or "" for the newest
  std::string data;        // a dataset directory, or "" for the one of training
  at::Device device = at::kCPU;
  // Without it, the dataset is opened only where the run keeps no vocabulary (runs of earlier
  // versions) or where data names one.
  bool needs_dataset = true;
  std::string without_dataset;  // advice where the dataset is gone: what can be done without it
};

struct TrainedRun {
  std::filesystem::path path;
  int64_t step = 0;  // of the checkpoint
  std::shared_ptr<const Predictor> predictor;
  std::shared_ptr<const data::Vocabulary> vocabulary;
  data::TypicalEvents typical;
  std::shared_ptr<const data::Dataset> dataset;  // null where it is not needed

  Lookup lookup() const { return {*vocabulary, dataset.get(), typical}; }
};

// Where a run keeps its vocabulary (data/dataset/saved_vocabulary.h).
std::filesystem::path vocabulary_path(const std::filesystem::path& run);

// Throws DataError where a file is missing or damaged, or where the dataset has another vocabulary,
// other actions or no times, unlike the one the model was trained on.
TrainedRun open_trained_run(const std::filesystem::path& path, const OpenOptions& options);

}  // namespace seqfuse::serving
