#include "data/batch/split.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/progress.h"

namespace seqfuse::data {
namespace {

void check_options(const Dataset& dataset, const SplitOptions& options) {
  SEQFUSE_CHECK_AS(UsageError, options.max_history >= 1,
                   "max_history_seqlen is {}; a window needs at least 1 event of history",
                   options.max_history);
  SEQFUSE_CHECK_AS(UsageError, options.max_candidates >= 0,
                   "max_num_candidates is {}; give 0 (every event is predicted) or more",
                   options.max_candidates);
  if (options.kind == SplitKind::leave_one_out) return;
  SEQFUSE_CHECK_AS(UsageError, options.train_fraction > 0 && options.train_fraction < 1,
                   "train_fraction is {}; it must lie between 0 and 1", options.train_fraction);
  SEQFUSE_CHECK_AS(UsageError,
                   options.kind != SplitKind::temporal || dataset.manifest().has_timestamps,
                   "split 'temporal' needs timestamps, and dataset '{}' has none: choose "
                   "leave_one_out or user, or preprocess again with a time column",
                   dataset.manifest().dataset_name);
}

int64_t events_before(std::span<const int64_t> timestamps, int64_t time) {
  return std::ranges::lower_bound(timestamps, time) - timestamps.begin();
}

// The smallest time before which at least the given fraction of all events lie. Bisects over time:
// timestamps are sorted within a user, so nothing needs copying or sorting.
int64_t time_cut(const Dataset& dataset, double fraction) {
  int64_t low = std::numeric_limits<int64_t>::max();
  int64_t high = std::numeric_limits<int64_t>::min();
  int64_t total = 0;
  for (int64_t row = 0; row < dataset.num_users(); ++row) {
    const auto timestamps = dataset.user(row).timestamps;
    if (timestamps.empty()) continue;
    low = std::min(low, timestamps.front());
    high = std::max(high, timestamps.back());
    total += std::ssize(timestamps);
  }
  if (total == 0) return 0;
  const auto wanted = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(total)));
  while (low < high) {
    const int64_t middle = std::midpoint(low, high);  // in [low, high)
    int64_t count = 0;
    for (int64_t row = 0; row < dataset.num_users(); ++row) {
      count += events_before(dataset.user(row).timestamps, middle);
    }
    if (count >= wanted) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

const char* kept_of(Truncate truncate) {
  switch (truncate) {
    case Truncate::newest:
      return "the newest of each user";
    case Truncate::oldest:
      return "the oldest of each user";
    case Truncate::random:
      return "in training any consecutive ones of each user, in evaluation the newest";
  }
  return "";
}

class Splitter {
 public:
  Splitter(const Dataset& dataset, const SplitOptions& options)
      : dataset_(dataset),
        options_(options),
        candidates_(options.retrieval ? 0 : options.max_candidates),
        targets_(std::max<int64_t>(1, candidates_)) {}

  Split run() {
    switch (options_.kind) {
      case SplitKind::leave_one_out:
        leave_one_out();
        break;
      case SplitKind::user:
        by_user();
        break;
      case SplitKind::temporal:
        temporal();
        break;
    }
    return std::move(split_);
  }

 private:
  int64_t kept_events(int64_t row) const {
    const auto n = static_cast<int64_t>(dataset_.user(row).items.size());
    return options_.truncate == Truncate::oldest ? std::min(n, options_.max_history + targets_) : n;
  }

  // Trains on the events [0, end) of a user.
  bool add_training_window(std::vector<Sample>& samples, int64_t row, int64_t end) {
    const int64_t fewest = options_.retrieval ? 2 : candidates_ + 1;
    if (end < fewest) return false;
    const int64_t longest = options_.max_history + (options_.retrieval ? 1 : candidates_);
    if (options_.truncate == Truncate::oldest) end = std::min(end, longest);
    const int64_t begin = std::max<int64_t>(0, end - longest);
    samples.push_back({.user = row,
                       .begin = begin,
                       .end = end,
                       .num_candidates = candidates_,
                       .slack = options_.truncate == Truncate::random ? begin : 0});
    return true;
  }

  // Predicts the events [begin, end) of a user from earlier ones.
  bool add_evaluation_window(std::vector<Sample>& samples, int64_t row, int64_t begin,
                             int64_t end) {
    if (begin < 1 || end <= begin) return false;
    samples.push_back({.user = row,
                       .begin = std::max<int64_t>(0, begin - options_.max_history),
                       .end = end,
                       .num_candidates = end - begin});
    return true;
  }

  // Tests on the events [test, end) of a user, validates on those just before, trains on the rest.
  void add_windows(int64_t row, int64_t test, int64_t end) {
    const int64_t validation = test - targets_;
    bool used = add_evaluation_window(split_.test, row, test, end);
    used |= add_evaluation_window(split_.validation, row, validation, test);
    used |=
        add_training_window(split_.train, row, options_.hold_out_validation ? validation : test);
    split_.skipped_users += used ? 0 : 1;
  }

  void leave_one_out() {
    const char* targets = targets_ == 1 ? "event" : "events";
    const std::string count = targets_ == 1 ? "" : fmt::format("{} ", targets_);
    for (int64_t row = 0; row < dataset_.num_users(); ++row) {
      const int64_t n = kept_events(row);
      add_windows(row, n - targets_, n);
    }
    split_.rule = fmt::format(
        "leave_one_out: each user's last {}{} is test, the {}before is validation and {} in "
        "training",
        count, targets, count.empty() ? "one " : count,
        options_.hold_out_validation ? "not" : "also");
    finish_rule();
  }

  void by_user() {
    std::vector<Sample> windows, evaluation;
    for (int64_t row = 0; row < dataset_.num_users(); ++row) {
      const int64_t n = kept_events(row);
      if (!add_training_window(windows, row, n)) {
        ++split_.skipped_users;
      } else if (options_.retrieval) {
        add_evaluation_window(evaluation, row, n - 1, n);
      } else {
        evaluation.push_back(windows.back());
        evaluation.back().slack = 0;
      }
    }
    const auto users = std::ssize(windows);
    const auto train = static_cast<int64_t>(options_.train_fraction * static_cast<double>(users));
    const int64_t validation = (train + 9) / 10;
    split_.train.assign(windows.begin(),
                        windows.begin() + train - (options_.hold_out_validation ? validation : 0));
    split_.validation.assign(evaluation.begin() + train - validation, evaluation.begin() + train);
    split_.test.assign(evaluation.begin() + train, evaluation.end());
    split_.rule = fmt::format(
        "user: the first {} of {} users (in the dataset's order) are training, the others test; "
        "validation is the last {} training users, {} in training",
        train, users, validation, options_.hold_out_validation ? "not" : "also");
    finish_rule();
  }

  void temporal() {
    const int64_t cut = time_cut(dataset_, options_.train_fraction);
    for (int64_t row = 0; row < dataset_.num_users(); ++row) {
      const UserSequence user = dataset_.user(row);
      const auto n = std::ssize(user.items);
      const int64_t test = events_before(user.timestamps, cut);
      add_windows(row, test, std::min(n, test + targets_));
    }
    split_.rule = fmt::format(
        "temporal: events before time {} are training ({} of all), each user's first {} after "
        "that are test, and each user's last {} before it validation, {} in training",
        cut, options_.train_fraction, targets_, targets_,
        options_.hold_out_validation ? "not" : "also");
    finish_rule();
  }

  void finish_rule() {
    split_.rule +=
        fmt::format("; histories hold at most {} events, {}; {} of {} users have too few events",
                    options_.max_history, kept_of(options_.truncate), split_.skipped_users,
                    dataset_.num_users());
  }

  const Dataset& dataset_;
  const SplitOptions& options_;
  const int64_t candidates_;  // of a training window
  const int64_t targets_;     // predicted in evaluation
  Split split_;
};

}  // namespace

Split make_split(const Dataset& dataset, const SplitOptions& options) {
  check_options(dataset, options);
  return Splitter(dataset, options).run();
}

}  // namespace seqfuse::data
