#include "serving/predictor.h"

#include <c10/core/DeviceGuard.h>

#include <utility>

#include "base/error.h"

namespace seqfuse::serving {
namespace hstu = models::hstu;
namespace {

// Per-call thread settings: no gradients, and the model's device as the current one.
class CallGuard {
 public:
  explicit CallGuard(at::Device device) : device_(device) {}

 private:
  const at::NoGradGuard no_grad_;
  const c10::OptionalDeviceGuard device_;
};

// finite: whether all of them are, one bool.
void check_finite(const at::Tensor& finite, const char* what) {
  if (finite.item<bool>()) return;
  throw_error<DataError>(
      "{} are not finite: the weights of the checkpoint are damaged\n"
      "  give another --checkpoint, or train again",
      what);
}

bool predicts_classes(const hstu::ModelSpec& spec) {
  return spec.ranking.prediction_head_arch.back() != spec.ranking.num_tasks;
}

}  // namespace

Predictor::Predictor(std::shared_ptr<hstu::TaskModel> model, at::Device device)
    : model_(std::move(model)),
      retrieval_(dynamic_cast<hstu::RetrievalModel*>(model_.get())),
      ranking_(dynamic_cast<hstu::RankingModel*>(model_.get())),
      device_(device) {
  for (const auto* table : model_->tables()) {
    SEQFUSE_CHECK(!table->is_sharded(), "a predictor needs all rows of table {} in this process",
                  table->name());
  }
  const CallGuard guard(device_);
  model_->to(device_);
  model_->eval();
  if (retrieval_ != nullptr) catalogue_.emplace(retrieval_->item_rows());
}

hstu::RetrievalModel& Predictor::retrieval() const {
  if (retrieval_ != nullptr) return *retrieval_;
  throw_error<UsageError>(
      "this is a ranking run, which orders given items: ask it for scores of candidates, or train "
      "a retrieval run to choose from all items");
}

hstu::RankingModel& Predictor::ranking() const {
  if (ranking_ != nullptr) return *ranking_;
  throw_error<UsageError>(
      "this is a retrieval run, which chooses from all items: ask it for its best items, or train "
      "a ranking run to predict actions");
}

at::Tensor Predictor::queries(const data::Batch& windows) const {
  const CallGuard guard(device_);
  return retrieval().query(windows);
}

const training::Catalogue& Predictor::catalogue() const {
  retrieval();  // throws unless a retrieval model
  return *catalogue_;
}

TopItems Predictor::top_items(const data::Batch& windows, int64_t k, const ItemLists& excluded,
                              std::span<const int64_t> allowed) const {
  const CallGuard guard(device_);
  const at::Tensor vectors = queries(windows);
  const at::Tensor finite = vectors.isfinite().all();
  // A GPU is busy with the vectors while the host makes the lists of excluded items.
  TopItems top = catalogue().top(vectors, k, excluded, allowed);
  check_finite(finite, "vectors of users");
  return top;
}

hstu::RankingModel::Output Predictor::forward(const data::Batch& windows) const {
  const CallGuard guard(device_);
  return ranking().forward(windows, {});
}

at::Tensor Predictor::candidate_scores(const data::Batch& windows) const {
  const CallGuard guard(device_);
  const at::Tensor logits = forward(windows).logits.to(at::kCPU, at::kDouble);
  check_finite(logits.isfinite().all(), "scores of candidates");
  if (!predicts_classes(spec())) return logits.sigmoid().contiguous();
  const at::Tensor labels = at::arange(logits.size(1), at::kDouble);
  return logits.softmax(1).mv(labels).unsqueeze(1).contiguous();
}

std::vector<std::string> Predictor::score_names(
    const std::vector<std::string>& action_names) const {
  ranking();
  if (predicts_classes(spec())) return {"expected class"};
  const int64_t tasks = spec().ranking.num_tasks;
  if (tasks == 1) return {"probability"};
  std::vector<std::string> names;
  for (int64_t task = 0; task < tasks; ++task) {
    names.push_back(task < std::ssize(action_names) ? action_names[task]
                                                    : "task " + std::to_string(task));
  }
  return names;
}

training::Metrics Predictor::evaluate(const data::Dataset& dataset,
                                      const std::vector<data::Sample>& samples,
                                      const training::EvaluationOptions& options) const {
  const CallGuard guard(device_);
  if (is_retrieval()) {
    return training::evaluate_retrieval(
        {.args = spec().retrieval,
         .catalogue = catalogue(),
         .queries = [&](const data::Batch& batch) { return queries(batch); }},
        dataset, samples, options);
  }
  return training::evaluate_ranking(
      {.spec = spec(), .forward = [&](const data::Batch& batch) { return forward(batch); }},
      dataset, samples, options);
}

}  // namespace seqfuse::serving
