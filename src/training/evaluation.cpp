#include "training/evaluation.h"

#include <optional>

#include "base/log.h"
#include "base/progress.h"
#include "data/batch.h"
#include "training/evaluation_catalogue.h"
#include "training/ranking_metrics.h"
#include "training/retrieval_metrics.h"
#include "training/seen_items.h"

namespace seqfuse::training {
namespace {

// Without dropout and gradients; puts the module back into the mode it was in.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module)
      : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationMode() { module_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  const torch::NoGradGuard no_grad_;
  torch::nn::Module& module_;
  bool was_training_;
};

// visit(batch, first) for each batch; first: the index of its first sample.
template <class Visit>
void for_each_batch(const data::Dataset& dataset, const std::vector<data::Sample>& samples,
                    const EvaluationOptions& options, Visit&& visit) {
  if (samples.empty()) log::warning("evaluate", "the split has no windows to evaluate");
  data::BatchLoader loader(dataset, samples, {.batch_size = options.batch_size, .shuffle = false},
                           /*epoch=*/0);
  std::optional<Progress> progress;
  if (options.show_progress) progress.emplace("evaluate", "users", std::ssize(samples));
  int64_t done = 0;
  for (int64_t index = 0; options.max_batches < 0 || index < options.max_batches; ++index) {
    const std::optional<data::Batch> batch = loader.next();
    if (!batch) break;
    visit(*batch, done);
    done += batch->batch_size();
    if (progress) progress->update(done);
  }
}

}  // namespace

Metrics evaluate_retrieval(models::RetrievalModel& model, const data::Dataset& dataset,
                           const std::vector<data::Sample>& samples,
                           const EvaluationOptions& options) {
  const EvaluationMode mode(model);
  const config::RetrievalArgs& args = model.spec().retrieval;
  RetrievalMetrics metrics(args.eval_metrics);
  const CatalogueRanks catalogue(model.item_rows());
  for_each_batch(dataset, samples, options, [&](const data::Batch& batch, int64_t first) {
    std::vector<int64_t> targets;
    std::vector<std::vector<int64_t>> seen;
    for (int64_t b = 0; b < batch.batch_size(); ++b) {
      const data::Sample& sample = samples[first + b];
      targets.push_back(target_item(dataset, sample));
      seen.push_back(args.filter_seen ? seen_items(dataset, sample) : std::vector<int64_t>{});
    }
    for (const int64_t rank : catalogue.ranks(model.query(batch), targets, seen)) metrics.add(rank);
  });
  return metrics.compute();
}

Metrics evaluate_ranking(models::RankingModel& model, const data::Dataset& dataset,
                         const std::vector<data::Sample>& samples,
                         const EvaluationOptions& options) {
  const EvaluationMode mode(model);
  const models::ModelSpec& spec = model.spec();
  RankingMetrics metrics(spec.ranking.eval_metrics, spec, dataset.manifest());
  const int64_t width = metrics.width();
  for_each_batch(dataset, samples, options, [&](const data::Batch& batch, int64_t) {
    const models::RankingModel::Output output = model.forward(batch, {});
    const torch::Tensor scores =
        (metrics.is_classes() ? output.logits.log_softmax(1) : output.logits)
            .to(torch::kFloat)
            .contiguous();
    const torch::Tensor labels =
        (metrics.is_classes() ? torch::one_hot(output.labels, width) : output.labels)
            .to(torch::kByte)
            .contiguous();
    const torch::Tensor windows = output.windows.contiguous();
    const float* score = scores.const_data_ptr<float>();
    const uint8_t* label = labels.const_data_ptr<uint8_t>();
    const int64_t* window = windows.const_data_ptr<int64_t>();
    for (int64_t p = 0; p < scores.size(0); ++p) {
      metrics.add(batch.users[window[p]], {score + p * width, static_cast<size_t>(width)},
                  {label + p * width, static_cast<size_t>(width)});
    }
  });
  return metrics.compute();
}

}  // namespace seqfuse::training
