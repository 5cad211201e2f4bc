// Opens a trained run: the model of one checkpoint, and the meaning of its ids.
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
  std::string data;        // a dataset directory, or "" for the training dataset
  at::Device device = at::kCPU;
  // If false, opens the dataset only if the run has no saved vocabulary (runs of earlier versions)
  // or data names one.
  bool needs_dataset = true;
  std::string without_dataset;  // advice if the dataset is missing: what works without it
};

struct TrainedRun {
  std::filesystem::path path;
  int64_t step = 0;  // of the checkpoint
  std::shared_ptr<const Predictor> predictor;
  std::shared_ptr<const data::Vocabulary> vocabulary;
  data::TypicalEvents typical;
  std::shared_ptr<const data::Dataset> dataset;  // null if not needed

  Lookup lookup() const { return {*vocabulary, dataset.get(), typical}; }
};

// The path of a run's saved vocabulary (data/dataset/saved_vocabulary.h).
std::filesystem::path vocabulary_path(const std::filesystem::path& run);

// Throws DataError if a file is missing or damaged, or if the dataset's vocabulary, actions or
// times differ from those that the model was trained on.
TrainedRun open_trained_run(const std::filesystem::path& path, const OpenOptions& options);

}  // namespace seqfuse::serving
