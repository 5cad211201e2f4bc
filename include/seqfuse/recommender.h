// Recommendations from a run of `seqfuse train`, as `seqfuse recommend` returns them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace seqfuse {

// Ids, actions and times are text, as in the dataset's source.
struct RecommendRequest {
  std::optional<std::string> user = {};  // of the dataset; or set items instead
  std::vector<std::string> items = {};   // a history, oldest first
  // One per item, or none: then filled in with the dataset's typical values, with a warning.
  std::vector<std::string> actions = {}, timestamps = {};
  std::vector<std::pair<std::string, std::string>> context = {};  // features and their values
  std::optional<std::string> request_time = {};
  std::vector<std::string> candidates = {};  // ranking run: the items to order
  int64_t top_k = 10;
  bool include_seen = false;  // retrieval: also items of the history
};

struct Recommendation {
  std::string item, title;  // title: empty if the dataset has none
  // By name; items are ordered by the first score. Retrieval: "score", the cosine with the query.
  // Ranking: the model's predictions.
  std::vector<std::pair<std::string, double>> scores;
};

// Immutable: recommend() may be called from several threads at once. Errors are std::exceptions;
// what() says what was given and what was expected.
class Recommender {
 public:
  // run: a run directory, of which the newest checkpoint is used. device: "cpu", "cuda" or "auto".
  // Throws if a file is missing or damaged. Requests by user need the run's dataset; it is not
  // opened if users is false.
  explicit Recommender(const std::string& run, const std::string& device = "cpu",
                       bool users = true);
  ~Recommender();
  Recommender(Recommender&&) noexcept;
  Recommender& operator=(Recommender&&) noexcept;

  // At most top_k items, best first. Throws on unknown ids, features, values or actions, on lists
  // of different lengths, and on times that decrease. Warnings are logged.
  std::vector<Recommendation> recommend(const RecommendRequest& request) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace seqfuse
