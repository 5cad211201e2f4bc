// A run directory: RUN/{operative_config.gin, run.json, metrics.jsonl, checkpoints/step_N/}; at the
// end of training also baselines.json (report/run_files.h); with --tensorboard, tensorboard/; with
// TrainerArgs.profile, profile.json and trace.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/parameters.h"
#include "report/run_files.h"
#include "report/tensorboard.h"

namespace seqfuse::training {

using report::RunInfo;

class RunDirectory {
 public:
  // Creates the directory with run.json, operative_config.gin and an empty metrics.jsonl. A path
  // that exists and is not an empty directory (or one that a killed create() left) is a UsageError;
  // force removes an earlier run first (only something that has a run.json: other directories are
  // refused even then). Throws IoError.
  static RunDirectory create(const std::filesystem::path& path, const RunInfo& info,
                             const std::string& operative_gin, bool force);

  // Opens an existing run. Throws DataError naming the file that is missing or malformed.
  static RunDirectory open(const std::filesystem::path& path);

  // That of a run that another process writes: nothing here touches a file.
  static RunDirectory of_other_process(const std::filesystem::path& path, const RunInfo& info);

  // The run goes on from the checkpoint of this step with another configuration: operative_gin
  // takes the place of operative_config.gin, and a line of metrics.jsonl says what has changed
  // since which step. Lines of later steps are dropped. No changes: nothing. Throws IoError.
  void record_changes(int64_t step, int64_t epoch, const std::vector<report::Difference>& changes,
                      const std::string& operative_gin);

  // The dataset is elsewhere now: run.json says so. Throws IoError.
  void record_dataset_path(const std::string& path);

  // Appends one line, whole or not at all, and hands it to the operating system. line["step"] is
  // the step it belongs to. Throws IoError.
  void append_metrics(const nlohmann::json& line);

  // From now on, writes what append_metrics() writes to a new file in RUN/tensorboard too.
  void start_tensorboard();

  // Drops the lines of steps after this one, and a last line that was cut off: before resuming from
  // the checkpoint of this step, so that the file equals that of a run that never stopped.
  // TensorBoard is told to drop them too. Returns the step of the last evaluation that stays, or
  // -1.
  int64_t truncate_metrics_after(int64_t step);

  const std::filesystem::path& path() const { return path_; }
  const RunInfo& info() const { return info_; }
  std::filesystem::path operative_config() const { return path_ / "operative_config.gin"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }

 private:
  RunDirectory(std::filesystem::path path, RunInfo info);

  std::filesystem::path path_;
  RunInfo info_;
  bool writes_ = true;
  std::optional<report::EventFile> events_;
};

}  // namespace seqfuse::training
