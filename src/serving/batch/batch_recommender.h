// The best items for many users: blocks of requests, of which each forward pass answers several at
// once, without padding.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "serving/batch/request_reader.h"
#include "serving/trained_run.h"

namespace seqfuse::serving {

// What is done for users of whom the model can know nothing: the data set does not have them, or a
// retrieval run has no event of theirs.
enum class ColdUsers { error, skip, popularity };

struct BatchOptions {
  int64_t top_k = 10;            // of each user
  std::vector<int64_t> allowed;  // the only items, ascending, each once; empty: all
  bool exclude_seen = true;      // items of the history
  bool skip_unknown = false;     // leave out items that the data set does not have
  ColdUsers cold_users = ColdUsers::error;
  std::function<bool()> stop = [] { return false; };  // asked before each forward pass
};

struct UserItems {
  std::string user;
  std::vector<int64_t> items;  // best first; none: see BatchCounts
  std::vector<double> scores;  // [items, S], or empty where popularity chose the items
};

struct BatchCounts {
  int64_t users = 0, rows = 0;            // rows: items of all users
  int64_t cold = 0;                       // users that are skipped, or get popular items
  int64_t without_items = 0;              // other users: nothing was left to recommend
  int64_t unknown = 0;                    // ids that skip_unknown left out
  std::string first_cold, first_unknown;  // a user, a message

  void add(const BatchCounts& later);
};

struct BatchReport {
  BatchCounts counts;
  std::vector<std::string> warnings;  // each once

  void add(const BatchReport& later);
};

class BatchRecommender {
 public:
  // The run must outlive this object. Throws UsageError if popularity is asked for and the run is
  // open without its dataset, DataError if a vector of its items is not finite.
  BatchRecommender(const TrainedRun& run, BatchOptions options);

  // Of the S scores of an item: "score" for retrieval, or Predictor::score_names().
  const std::vector<std::string>& score_names() const { return score_names_; }

  // An entry for each request. The same items and, to rounding, scores as retrieve() and rank(),
  // whatever the requests beside it. Throws UsageError for the first request that is wrong, naming
  // it. If it was stopped, entries may lack their items.
  std::vector<UserItems> recommend(std::span<const UserRequest> requests);

  // Of all requests since the last call.
  BatchReport take_report() { return std::exchange(report_, {}); }

 private:
  struct Prepared;

  Prepared prepare(const UserRequest& request) const;
  bool is_cold(const Request& request) const;
  std::vector<int64_t> popular_for(const Request& request) const;
  // The next windows that one forward pass takes: from begin to the result.
  size_t end_of_pass(std::span<Prepared* const> windows, size_t begin) const;
  void answer(std::span<Prepared* const> windows) const;
  void count(const Prepared& prepared);

  const TrainedRun& run_;
  BatchOptions options_;
  std::vector<std::string> score_names_;
  std::vector<int64_t> popular_;  // allowed items in order, if they are asked for
  BatchReport report_;
};

}  // namespace seqfuse::serving
