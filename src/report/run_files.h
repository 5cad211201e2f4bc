// The small JSON files of a run directory: run.json and baselines.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "report/metrics.h"

namespace seqfuse::report {

// What a run was started on; run.json.
struct RunInfo {
  std::string task;          // "ranking" or "retrieval"
  std::string dataset_path;  // absolute
  std::string dataset_hash;  // Manifest::hash
  // Of the dataset; 0 in runs of versions that did not record them.
  int64_t dataset_users = 0, dataset_events = 0;
  uint64_t seed = 0;
  std::string version;  // of seqfuse
};

// Both throw IoError; reading throws DataError naming the file if it is malformed.
void write_run_info(const std::filesystem::path& run, const RunInfo& info);
RunInfo read_run_info(const std::filesystem::path& run);

// What counting alone achieves on the data of the run's evaluations: RUN/baselines.json. Reading
// gives none if there is no such file.
void write_baselines(const std::filesystem::path& run, const NamedMetrics& baselines);
NamedMetrics read_baselines(const std::filesystem::path& run);

}  // namespace seqfuse::report
