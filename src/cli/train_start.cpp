#include "cli/train_start.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "serving/trained_run.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/grown_vocabulary.h"
#include "training/checkpoint/run_directory.h"
#include "training/loop/training_state.h"

namespace seqfuse::cli {
namespace fs = std::filesystem;
namespace {

// Moves the weights to the vocabulary of the dataset where that has grown. Returns whether it has.
bool move_to_dataset(training::Checkpoint& checkpoint, const fs::path& run,
                     const data::Dataset& dataset, const models::hstu::ModelSpec& spec) {
  const auto growth =
      training::move_to_vocabulary(checkpoint, serving::vocabulary_path(run), dataset, spec);
  if (growth.empty()) return false;
  log::info("train", "the vocabulary has grown: {}", training::growth_text(growth));
  return true;
}

void tell_new_data(const fs::path& path, const data::Dataset& dataset) {
  const training::RunInfo before = training::RunDirectory::open(path).info();
  const data::Manifest& now = dataset.manifest();
  const std::string then =
      before.dataset_events > 0
          ? fmt::format(", {} of {} before", before.dataset_events, before.dataset_users)
          : "";
  log::info("train",
            "new data: {} events of {} users{}; their first epoch begins, and the best metrics so "
            "far are forgotten",
            now.num_events, now.num_users, then);
}

}  // namespace

void start_weights(training::Trainer& trainer, const fs::path& resumed, bool new_data,
                   const std::string& load_directory, const data::Dataset& dataset,
                   const models::hstu::ModelSpec& spec) {
  if (!resumed.empty()) {
    if (const auto newest = training::newest_checkpoint(resumed)) {
      training::Checkpoint checkpoint = training::load_checkpoint(*newest);
      const bool grown = move_to_dataset(checkpoint, resumed, dataset, spec);
      if (new_data) {
        tell_new_data(resumed, dataset);
        training::begin_new_data(checkpoint.state);
      }
      trainer.resume(std::move(checkpoint), grown);
      log::info("train", "resuming from {}", newest->string());
      return;
    }
    log::info("train", "{} has no checkpoint yet: starting from the beginning", resumed.string());
  }
  if (load_directory.empty()) return;
  training::Checkpoint checkpoint = training::load_checkpoint(load_directory);
  // RUN/checkpoints/step_N
  const fs::path run = fs::canonical(load_directory).parent_path().parent_path();
  const bool grown = move_to_dataset(checkpoint, run, dataset, spec);
  trainer.start_from(std::move(checkpoint), grown);
  log::info("train", "weights from {}", load_directory);
}

}  // namespace seqfuse::cli
