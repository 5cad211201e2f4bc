// A run directory: RUN/{operative_config.gin, run.json, metrics.jsonl, checkpoints/step_N/} and
// vocabulary/ (data/dataset/saved_vocabulary.h); at the end of training also baselines.json
// (report/run_files.h); with --tensorboard, tensorboard/; with TrainerArgs.profile, profile.json and
// trace.json.
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
  // Creates the directory with run.json, operative_config.gin and an empty metrics.jsonl. Throws
  // UsageError if the path exists and is neither an empty directory nor left by a killed create().
  // force first removes an earlier run; a directory without run.json is refused even then. Throws
  // IoError.
  static RunDirectory create(const std::filesystem::path& path, const RunInfo& info,
                             const std::string& operative_gin, bool force);

  // Opens an existing run. Throws DataError naming the file that is missing or malformed.
  static RunDirectory open(const std::filesystem::path& path);

  // The directory of a run that another process writes: this object touches no file.
  static RunDirectory of_other_process(const std::filesystem::path& path, const RunInfo& info);

  // Records that the run resumes from this step's checkpoint, possibly with another configuration:
  // replaces operative_config.gin by operative_gin, adds a line with the changes to metrics.jsonl,
  // and drops lines of later steps. The line repeats changes of dropped lines that are still in
  // force, and completes a record that a killed process left partial, so that the lines always lead
  // to operative_gin. Writes nothing if nothing changed. Throws IoError.
  void record_changes(int64_t step, int64_t epoch, const std::vector<report::Difference>& changes,
                      const std::string& operative_gin);

  // Records in run.json the path, vocabulary and sizes of the dataset that training continues on.
  // Throws IoError.
  void record_dataset(const RunInfo& now);

  // Appends one line atomically and passes it to the operating system. line["step"]: its
  // step. Throws IoError.
  void append_metrics(const nlohmann::json& line);

  // From now on, append_metrics() also writes to a new file in RUN/tensorboard.
  void start_tensorboard();

  // Call before resuming from this step's checkpoint: drops the lines of later steps and a
  // truncated last line, in TensorBoard too, so that the file will equal that of an uninterrupted
  // run. Returns the step of the last remaining evaluation, or -1.
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
