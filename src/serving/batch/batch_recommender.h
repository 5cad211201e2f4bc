// The best items for many users: blocks of requests, of which each forward pass answers several at
// once, without padding.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "serving/batch/request_reader.h"
#include "serving/request_window.h"
#include "serving/trained_run.h"

namespace seqfuse::serving {

// What to do with cold users: those that the data set does not have and, in a retrieval run, those
// without a known event.
enum class ColdUsers { error, skip, popularity };

struct BatchOptions {
  int64_t top_k = 10;            // of each user
  std::vector<int64_t> allowed;  // the only items, ascending, each once; empty: all
  bool exclude_seen = true;      // items of the history
  bool skip_unknown = false;     // leave out items that the data set does not have
  ColdUsers cold_users = ColdUsers::error;
  std::function<bool()> stop = [] { return false; };  // asked before each forward pass
  // Told how many more users are done; from several threads at once.
  std::function<void(int64_t users)> answered = [](int64_t) {};
};

struct UserItems {
  std::string user;
  std::vector<int64_t> items;  // best first; none: see BatchCounts
  std::vector<double> scores;  // [items, S], or empty where popularity chose the items
};

struct BatchCounts {
  int64_t users = 0, rows = 0;            // rows: items of all users
  int64_t answered = 0;                   // users with at least one item
  int64_t cold = 0;                       // users that are skipped or get popular items
  int64_t without_items = 0;              // other users for whom no item was left
  int64_t unknown = 0;                    // ids that skip_unknown left out
  std::string first_cold, first_unknown;  // a user, a message

  void add(const BatchCounts& later);
};

struct BatchReport {
  BatchCounts counts;
  std::vector<std::string> warnings;  // each once

  void add(const BatchReport& later);
};

struct AnsweredBlock {
  std::vector<UserItems> users;  // one for each request
  BatchReport report;
};

// A request as the model reads it.
struct PreparedRequest {
  bool cold = false;
  RequestWindow window;  // unless cold; seen: what is left out, ascending, each once
  UserItems answer;      // of a cold user
};

// Immutable: all methods may be called from several threads at once, for instance to prepare a block
// while the model answers the one before it.
class BatchRecommender {
 public:
  // The run must outlive this object. Throws UsageError if popularity is asked for and the run is
  // open without its dataset, DataError if a vector of its items is not finite.
  BatchRecommender(const TrainedRun& run, BatchOptions options);

  // The names of an item's S scores: "score" for retrieval, or Predictor::score_names().
  const std::vector<std::string>& score_names() const { return score_names_; }

  // Gives the items of retrieve() and rank(), and their scores to rounding; other requests of the
  // block make no difference. Throws for the first wrong request: DataError naming the row of the file
  // it was read from, UsageError for a user of the data set. After a stop, users may lack items.
  AnsweredBlock recommend(std::span<const UserRequest> requests) const {
    return answer(prepare(requests));
  }

  // The two halves of recommend(): work of the CPU alone, and work of the model's device.
  std::vector<PreparedRequest> prepare(std::span<const UserRequest> requests) const;
  AnsweredBlock answer(std::vector<PreparedRequest> block) const;

 private:
  int64_t row_of(const UserRequest& request) const;
  bool is_cold(const Request& request, int64_t row) const;
  PreparedRequest prepare_one(const UserRequest& request, int64_t row) const;
  RequestWindow window_of(const Request& request, int64_t row) const;
  std::vector<int64_t> popular_for(const Request& request) const;
  // The next windows that one forward pass takes: from begin to the result.
  size_t end_of_pass(std::span<PreparedRequest* const> windows, size_t begin) const;
  void answer_pass(std::span<PreparedRequest* const> windows) const;

  const TrainedRun& run_;
  BatchOptions options_;
  std::vector<std::string> score_names_;
  std::vector<int64_t> popular_;  // allowed items in order, if they are asked for
};

}  // namespace seqfuse::serving
