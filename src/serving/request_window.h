// Converts a request to the window of events that a model reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/batch/batch.h"
#include "models/hstu/model_spec.h"
#include "serving/history.h"
#include "serving/lookup.h"
#include "serving/request.h"

namespace seqfuse::serving {

struct RequestWindow {
  // One window: the newest max_history events, then the candidates at the request time. For
  // retrieval the only candidate is the unknown item, a placeholder for the target.
  data::Batch batch;
  std::vector<int64_t> seen;  // items of the whole history
  std::vector<int64_t> candidates;
  std::vector<std::string> warnings;  // for people; the first is of unknown ids if there are any
  int64_t unknown = 0;                // ids of history and candidates that were left out
};

// Candidates of a ranking run that are not wanted, though the request names them.
struct UnwantedCandidates {
  std::span<const int64_t> allowed;  // if not empty, all others; ascending
  bool seen = false;                 // items of the history
};

// Fills in missing values with the dataset's typical ones, so that the model sees what it was
// trained on:
//   timestamps     apart by the typical gap (typical_gap())
//   request time   the typical gap after the last event, also for a user
//   actions        the most common one
//   context        unknown, 0
// With skip_unknown, items that the data set does not have are left out of history and candidates.
// Unwanted candidates are left out too, also if none remains.
// Throws UsageError: an unknown id, feature, value or action; a blank; lists of different lengths;
// times that decrease; nothing to recommend from; a user where the lookup has no dataset.
RequestWindow request_window(const Lookup& lookup, const models::hstu::ModelSpec& spec,
                             const Request& request, bool skip_unknown = false,
                             const UnwantedCandidates& unwanted = {});
// The same for a user of the dataset whose history has been read.
RequestWindow request_window(const Lookup& lookup, const models::hstu::ModelSpec& spec,
                             const Request& request, History history, bool skip_unknown,
                             const UnwantedCandidates& unwanted);

}  // namespace seqfuse::serving
