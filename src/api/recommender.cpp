#include "seqfuse/recommender.h"

#include <utility>

#include "base/log.h"
#include "serving/recommendations.h"
#include "serving/request.h"
#include "serving/request_window.h"
#include "serving/trained_run.h"
#include "training/device/device.h"

namespace seqfuse {
namespace {

std::optional<serving::Texts> unless_empty(const std::vector<std::string>& texts) {
  if (texts.empty()) return std::nullopt;
  return texts;
}

serving::Request to_request(const RecommendRequest& request) {
  serving::Request result;
  result.user = request.user;
  result.items = unless_empty(request.items);
  result.actions = unless_empty(request.actions);
  result.timestamps = unless_empty(request.timestamps);
  result.context = request.context;
  result.request_time = request.request_time;
  result.candidates = unless_empty(request.candidates);
  return result;
}

}  // namespace

struct Recommender::State {
  serving::TrainedRun run;
};

Recommender::Recommender(const std::string& run, const std::string& device, bool users)
    : state_(new State{serving::open_trained_run(
          run, {.checkpoint = "",
                .data = "",
                .device = training::choose_device(device, /*required_sm=*/""),
                .needs_dataset = users,
                .without_dataset = ", for users' events; requests with items work without it"})}) {}
Recommender::~Recommender() = default;
Recommender::Recommender(Recommender&&) noexcept = default;
Recommender& Recommender::operator=(Recommender&&) noexcept = default;

std::vector<Recommendation> Recommender::recommend(const RecommendRequest& request) const {
  const serving::TrainedRun& run = state_->run;
  const serving::RequestWindow window =
      serving::request_window(run.lookup(), run.predictor->spec(), to_request(request));
  for (const std::string& warning : window.warnings) log::warning("recommend", "{}", warning);
  const std::vector<serving::RankedItem> ranked =
      run.predictor->is_retrieval()
          ? serving::retrieve(*run.predictor, window, request.top_k, request.include_seen)
          : serving::rank(*run.predictor, window, run.vocabulary->manifest().action_names,
                          request.top_k);
  std::vector<Recommendation> recommendations;
  for (const serving::RankedItem& item : ranked) {
    recommendations.push_back({.item = run.vocabulary->item_id(item.item),
                               .title = run.vocabulary->item_title(item.item),
                               .scores = item.scores});
  }
  return recommendations;
}

}  // namespace seqfuse
