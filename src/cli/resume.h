// Checks and records for `seqfuse train --resume RUN`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/load.h"
#include "data/dataset/dataset.h"
#include "report/parameters.h"
#include "training/checkpoint/run_directory.h"

namespace seqfuse::cli {

struct Resumed {
  std::vector<report::Difference> changes;  // of the configuration
  std::string data;                         // the dataset directory
};

// Checks that a run can be resumed. data: value of --data, or "". Throws UsageError if the run has
// another task, or if a setting changed that must not (training/loop/resumed_config.h).
Resumed check_resumed(const std::filesystem::path& run, config::Task task, const std::string& data,
                      const config::LoadedConfig& loaded);

// Whether the dataset is not the one that the run was trained on so far, but may be that one with
// new events. Throws DataError if it has fewer users or events.
bool has_new_data(const std::filesystem::path& run, const data::Dataset& dataset);

// For runs on generated users, whose number depends on the batch size. Throws UsageError if that
// changed.
void check_same_users(const std::filesystem::path& run, const Resumed& resumed);

// Says what changed after the step from which the run goes on, and records it in the run. now: of
// its dataset.
void record_resumed(const Resumed& resumed, int64_t step, int64_t epoch,
                    const std::string& operative_gin, const training::RunInfo& now,
                    training::RunDirectory& run);

}  // namespace seqfuse::cli
