// Writes the files of a training run and handles write errors.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/args.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/run_directory.h"

namespace seqfuse::training {

// With TrainerArgs.on_checkpoint_error = 'stop', a failed write throws IoError. With 'continue' it
// logs a warning: lines of metrics.jsonl are queued until they can be written, and older
// checkpoints stay.
class RunWriter {
 public:
  // run and args must outlive it.
  RunWriter(RunDirectory& run, const config::TrainerArgs& args);

  void append_metrics(const nlohmann::json& line);

  // Returns whether the checkpoint was written. last: training ends with it, so a failure always
  // throws IoError.
  bool save(const Checkpoint& checkpoint, bool last);

  // Throws IoError if lines still cannot be written.
  void finish();

  const std::filesystem::path& path() const { return run_.path(); }
  // "the last checkpoint is RUN/checkpoints/step_N", or that there is none.
  std::string last_checkpoint() const;

 private:
  void write_waiting();

  RunDirectory& run_;
  const config::TrainerArgs& args_;
  std::vector<nlohmann::json> waiting_;  // queued lines of metrics.jsonl, oldest first
};

}  // namespace seqfuse::training
