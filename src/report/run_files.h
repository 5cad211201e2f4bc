// The small JSON files of a run directory: run.json and baselines.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "config/choices.h"
#include "metrics/metrics.h"

namespace seqfuse::report {

using metrics::Metrics;
using metrics::NamedMetrics;

// run.json: the task, the dataset and the seed of a run.
struct RunInfo {
  config::Task task = config::Task::retrieval;
  std::string dataset_path;  // absolute
  std::string dataset_hash;  // Manifest::hash
  // Sizes of the dataset; 0 in runs of older versions.
  int64_t dataset_users = 0, dataset_events = 0;
  uint64_t seed = 0;
  std::string version;  // of seqfuse
};

// Both throw IoError. Reading throws DataError naming the file if it is malformed.
void write_run_info(const std::filesystem::path& run, const RunInfo& info);
RunInfo read_run_info(const std::filesystem::path& run);

// RUN/baselines.json: metrics of the baselines on the windows of the run's evaluations. Reading
// returns none if the file does not exist.
void write_baselines(const std::filesystem::path& run, const NamedMetrics& baselines);
NamedMetrics read_baselines(const std::filesystem::path& run);

}  // namespace seqfuse::report
