// Recommendations from a run that `seqfuse train` made: what `seqfuse recommend` gives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace seqfuse {

// Ids, actions and times are text, as they stand in the source of the data set.
struct RecommendRequest {
  std::optional<std::string> user = {};  // of the data set; else items
  std::vector<std::string> items = {};   // a history, oldest first
  // One for each of items, or none: then made up as the data set typically is, with a warning.
  std::vector<std::string> actions = {}, timestamps = {};
  std::vector<std::pair<std::string, std::string>> context = {};  // features and their values
  std::optional<std::string> request_time = {};
  std::vector<std::string> candidates = {};  // of a ranking run: the items to order
  int64_t top_k = 10;
  bool include_seen = false;  // retrieval: also items of the history
};

struct Recommendation {
  std::string item, title;  // title: empty where the data set has none
  // By name; the first one orders the items. Retrieval: "score", the cosine with the query.
  // Ranking: what the model predicts.
  std::vector<std::pair<std::string, double>> scores;
};

// Immutable: recommend() may be called from several threads at once. Errors are std::exceptions
// whose what() says what was given and what was expected.
class Recommender {
 public:
  // run: a run directory; its newest checkpoint is used. device: "cpu", "cuda" or "auto". Throws
  // where a file is missing or damaged. Requests by user need the data set of the run, unless
  // users is false; then it is not opened.
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
