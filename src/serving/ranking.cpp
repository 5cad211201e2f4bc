#include "serving/ranking.h"

#include <torch/types.h>

#include <algorithm>

namespace seqfuse::serving {
namespace {

// [candidates, scores], float64
torch::Tensor scores_of(const torch::Tensor& logits, bool classes) {
  if (!classes) return logits.sigmoid().contiguous();
  const torch::Tensor labels = torch::arange(logits.size(1), torch::kDouble);
  return logits.softmax(1).mv(labels).unsqueeze(1).contiguous();
}

std::vector<std::string> score_names(int64_t scores, bool classes,
                                     const std::vector<std::string>& action_names) {
  if (classes) return {"expected class"};
  if (scores == 1) return {"probability"};
  std::vector<std::string> names;
  for (int64_t task = 0; task < scores; ++task) {
    names.push_back(task < std::ssize(action_names) ? action_names[task]
                                                    : "task " + std::to_string(task));
  }
  return names;
}

}  // namespace

std::vector<RankedItem> rank(models::hstu::RankingModel& model, const RequestWindow& window,
                             const std::vector<std::string>& action_names, int64_t top_k) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor logits = model.forward(window.batch, {}).logits.to(torch::kDouble);
  const bool classes = logits.size(1) != model.spec().ranking.num_tasks;
  const torch::Tensor scores = scores_of(logits, classes);
  const std::vector<std::string> names = score_names(scores.size(1), classes, action_names);
  const double* score = scores.const_data_ptr<double>();
  std::vector<RankedItem> ranked;
  for (const int64_t item : window.candidates) {
    RankedItem& row = ranked.emplace_back(RankedItem{.item = item});
    for (const std::string& name : names) row.scores.emplace_back(name, *score++);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedItem& a, const RankedItem& b) {
    return a.scores.front().second > b.scores.front().second;
  });
  if (std::ssize(ranked) > top_k) ranked.resize(top_k);
  return ranked;
}

}  // namespace seqfuse::serving
