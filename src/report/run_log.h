// Reads the log of a run, which may still be training.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "metrics/metrics.h"
#include "report/parameters.h"
#include "report/run_files.h"

namespace seqfuse::report {

using metrics::is_better;
using metrics::Metrics;
using metrics::NamedMetrics;
using metrics::value_of;

struct LogPoint {
  int64_t step = 0, epoch = 0;
  double value = 0;
};

struct Evaluation {
  int64_t step = 0, epoch = 0;
  Metrics metrics;  // in the order of RunLog::metric_names
  // Retrieval: number of targets, and of those that their user had seen before. 0: not logged.
  int64_t targets = 0, seen_targets = 0;
};

// A parameter that changed when the run was resumed after this step.
struct ConfigurationChange {
  int64_t step = 0;
  std::string parameter, before, now;  // literals; "": unset
};

struct RunLog {
  std::string name;  // the directory's name
  std::filesystem::path path;
  RunInfo info;
  std::string operative;  // the text of operative_config.gin
  Parameters parameters;
  // By field of metrics.jsonl: "loss", "tokens_per_second", "learning_rate", "gradient_norm", ...
  std::map<std::string, std::vector<LogPoint>> scalars;
  std::vector<Evaluation> evaluations;
  std::vector<ConfigurationChange> changes;  // in order
  std::vector<std::string> metric_names;     // the first one decides the best evaluation
  NamedMetrics baselines;
  int64_t last_step = 0, last_epoch = 0;  // 0 before the first line
  double seconds = 0;                     // of training, as of the last line
  std::time_t last_written = 0;           // when metrics.jsonl was last written

  // Null without evaluations.
  const Evaluation* last_evaluation() const;
  const Evaluation* best_evaluation() const;
};

// Ignores a truncated last line of metrics.jsonl. Throws UsageError if the path is not a run
// directory, DataError naming file and line of malformed content, IoError.
RunLog read_run(const std::filesystem::path& path);

// Reads runs and gives each a unique name.
std::vector<RunLog> read_runs(const std::vector<std::string>& paths);

}  // namespace seqfuse::report
