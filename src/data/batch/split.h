// Splits the events of users into training and evaluation windows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/choices.h"
#include "data/dataset/dataset.h"
#include "data/dataset/sample.h"

namespace seqfuse::data {

// In its comments, k is 1 for retrieval and max(1, max_candidates) for ranking.
using config::SplitKind;
using config::Truncate;

struct SplitOptions {
  SplitKind kind = SplitKind::leave_one_out;
  bool retrieval = true;       // one evaluation candidate; training windows have one more event
  int64_t max_history = 200;   // events of history in a window
  int64_t max_candidates = 0;  // ranking: candidates in a window (0: every event is predicted)
  Truncate truncate = Truncate::newest;
  double train_fraction = 0.7;       // user: of the users; temporal: of all events, by time
  bool hold_out_validation = false;  // do not train on validation events (to select settings)
};

// Windows in order of the users. Every window has at least one event of history. In split `user`,
// validation is the last tenth of the training users.
struct Split {
  std::vector<Sample> train, validation, test;
  int64_t skipped_users = 0;  // with too few events for any window
  std::string rule;           // one sentence for logs and for the run directory
};

// Throws UsageError if an option is out of range, or for `temporal` on data without times.
Split make_split(const Dataset& dataset, const SplitOptions& options);

}  // namespace seqfuse::data
