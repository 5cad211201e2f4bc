// Which events of which user train, and which are predicted in evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"

namespace seqfuse::data {

// k below: 1 for retrieval, max(1, max_candidates) for ranking.
enum class SplitKind {
  leave_one_out,  // test: each user's last k events; validation: the k before them; train: the rest
  user,           // the first train_fraction of users train, the others are tested
  temporal,  // events before a cut in time train; each user's first k events after it are tested
};
// Which events are kept of a user with more than fit a window.
enum class Truncate {
  newest,  // those nearest to what is predicted
  oldest,  // leave_one_out, user: the user's later events are dropped, then the split is made;
           // temporal: training windows keep a user's first events
  random,  // training: any that follow each other, others in every epoch; evaluation: the newest
};

// A window of one user's events: [begin, end). The last num_candidates events are candidates (their
// actions are what ranking predicts, and their labels are never visible to the model); for
// retrieval evaluation the last one is the item to be found.
struct Sample {
  int64_t user = 0;
  int64_t begin = 0, end = 0;
  int64_t num_candidates = 0;
  // A batch of training takes the window from so many events earlier at most, drawn anew in every
  // epoch.
  int64_t slack = 0;
};

struct SplitOptions {
  SplitKind kind = SplitKind::leave_one_out;
  bool retrieval = true;       // candidates of evaluation: 1; training windows hold one event more
  int64_t max_history = 200;   // events of history in a window
  int64_t max_candidates = 0;  // ranking: candidates in a window (0: every event is predicted)
  Truncate truncate = Truncate::newest;
  double train_fraction = 0.7;       // user: of the users; temporal: of all events, by time
  bool hold_out_validation = false;  // validation is not trained on (to choose settings on it)
};

// Windows in order of the users. Every window has at least one event of history. In split `user`,
// validation is the last tenth of the training users.
struct Split {
  std::vector<Sample> train, validation, test;
  int64_t skipped_users = 0;  // too few events for any window
  std::string rule;           // one sentence for logs and for the run directory
};

// Throws UsageError if an option is out of range, or if `temporal` is asked of data without times.
Split make_split(const Dataset& dataset, const SplitOptions& options);

}  // namespace seqfuse::data
