#include "training/evaluation/evaluation.h"

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "base/progress.h"
#include "data/batch/batch.h"
#include "metrics/retrieval_metrics.h"
#include "training/evaluation/catalogue.h"
#include "training/evaluation/ranking_labels.h"
#include "training/evaluation/seen_items.h"

namespace seqfuse::training {
namespace {

// Turns off dropout and gradients; restores the module's mode at the end.
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

// The windows that this process evaluates. All processes' windows, concatenated, are the first
// max_batches batches of each, or all.
struct OwnSamples {
  std::vector<data::Sample> samples;
  int64_t most = 0;  // windows per process, at most

  OwnSamples(const std::vector<data::Sample>& all, const EvaluationOptions& options) {
    if (all.empty()) log::warning("evaluate", "the split has no windows to evaluate");
    const int64_t size = options.group->size(), rank = options.group->rank();
    const int64_t count = num_evaluated(all, options);
    samples.assign(all.begin() + count * rank / size, all.begin() + count * (rank + 1) / size);
    most = (count + size - 1) / size;
  }
};

// Calls visit(batch, first) for each batch; first: index of its first sample. Returns false if
// stopped.
template <class Visit>
bool for_each_batch(const embeddings::Tables& tables, const data::Dataset& dataset,
                    const OwnSamples& own, const EvaluationOptions& options, Visit&& visit) {
  data::BatchLoader loader(dataset, own.samples,
                           {.batch_size = options.batch_size, .shuffle = false},
                           /*epoch=*/0);
  std::optional<Progress> progress;
  if (options.show_progress) progress.emplace("evaluate", "users", std::ssize(own.samples));
  int64_t done = 0, batches = 0;
  while (const std::optional<data::Batch> batch = loader.next()) {
    if (options.stop()) return false;
    visit(*batch, done);
    ++batches;
    done += batch->batch_size();
    if (progress) progress->update(done);
  }
  // Other processes may have one more batch, for which they fetch rows of sharded tables.
  for (; batches * options.batch_size < own.most; ++batches) {
    embeddings::fetch_nothing(tables);
  }
  return true;
}

// Concatenates the results of all processes in order of the windows. empty: the result of no batch.
torch::Tensor gather(const EvaluationOptions& options, const std::vector<torch::Tensor>& parts,
                     const torch::Tensor& empty) {
  const torch::Tensor own = parts.empty() ? empty : torch::cat(parts).cpu().to(empty.scalar_type());
  return options.group->gather(own, "gathering of the evaluation");
}

}  // namespace

int64_t num_evaluated(const std::vector<data::Sample>& samples, const EvaluationOptions& options) {
  const int64_t count = std::ssize(samples);
  if (options.max_batches < 0) return count;
  return std::min(count, options.max_batches * options.batch_size * options.group->size());
}

Metrics evaluate_retrieval(const RetrievalScorer& scorer, const data::Dataset& dataset,
                           const std::vector<data::Sample>& samples,
                           const EvaluationOptions& options) {
  metrics::RetrievalMetrics metrics(scorer.args.eval_metrics);
  const OwnSamples own(samples, options);
  std::vector<torch::Tensor> ranks;
  const bool whole = for_each_batch(
      scorer.tables, dataset, own, options, [&](const data::Batch& batch, int64_t first) {
        std::vector<int64_t> targets;
        ItemLists seen;
        for (int64_t b = 0; b < batch.batch_size(); ++b) {
          const data::Sample& sample = own.samples[first + b];
          targets.push_back(target_item(dataset, sample));
          seen.push_back(scorer.args.filter_seen ? seen_items(dataset, sample)
                                                 : std::vector<int64_t>{});
        }
        ranks.push_back(scorer.catalogue.ranks(scorer.queries(batch), targets, seen));
      });
  if (!whole) return {};
  const torch::Tensor all = gather(options, ranks, torch::zeros({0}, torch::kLong));
  const int64_t* rank = all.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < all.numel(); ++i) metrics.add(rank[i]);
  return metrics.compute();
}

Metrics evaluate_ranking(const RankingScorer& scorer, const data::Dataset& dataset,
                         const std::vector<data::Sample>& samples,
                         const EvaluationOptions& options) {
  const models::hstu::ModelSpec& spec = scorer.spec;
  metrics::RankingMetrics metrics = ranking_metrics(spec, dataset.manifest());
  const int64_t width = metrics.width();
  std::vector<torch::Tensor> scores, labels, users;
  const bool whole = for_each_batch(
      scorer.tables, dataset, OwnSamples(samples, options), options,
      [&](const data::Batch& batch, int64_t) {
        const models::hstu::RankingModel::Output output = scorer.forward(batch);
        scores.push_back(metrics.is_classes() ? output.logits.log_softmax(1) : output.logits);
        labels.push_back(metrics.is_classes() ? torch::one_hot(output.labels, width)
                                              : output.labels);
        users.push_back(torch::tensor(batch.users).index_select(0, output.windows.cpu()));
      });
  if (!whole) return {};
  const torch::Tensor all_scores =
      gather(options, scores, torch::zeros({0, width}, torch::kFloat)).contiguous();
  const torch::Tensor all_labels =
      gather(options, labels, torch::zeros({0, width}, torch::kByte)).contiguous();
  const torch::Tensor all_users = gather(options, users, torch::zeros({0}, torch::kLong));
  const float* score = all_scores.const_data_ptr<float>();
  const uint8_t* label = all_labels.const_data_ptr<uint8_t>();
  const int64_t* user = all_users.const_data_ptr<int64_t>();
  for (int64_t p = 0; p < all_users.numel(); ++p) {
    metrics.add(user[p], {score + p * width, static_cast<size_t>(width)},
                {label + p * width, static_cast<size_t>(width)});
  }
  return metrics.compute();
}

Metrics evaluate_retrieval(models::hstu::RetrievalModel& model, const data::Dataset& dataset,
                           const std::vector<data::Sample>& samples,
                           const EvaluationOptions& options) {
  const EvaluationMode mode(model);
  const Catalogue catalogue(model.item_rows());
  return evaluate_retrieval(
      {.args = model.spec().retrieval,
       .catalogue = catalogue,
       .queries = [&](const data::Batch& batch) { return model.query(batch); },
       .tables = model.tables()},
      dataset, samples, options);
}

Metrics evaluate_ranking(models::hstu::RankingModel& model, const data::Dataset& dataset,
                         const std::vector<data::Sample>& samples,
                         const EvaluationOptions& options) {
  const EvaluationMode mode(model);
  return evaluate_ranking(
      {.spec = model.spec(),
       .forward = [&](const data::Batch& batch) { return model.forward(batch, {}); },
       .tables = model.tables()},
      dataset, samples, options);
}

Metrics evaluate(models::hstu::TaskModel& model, const data::Dataset& dataset,
                 const std::vector<data::Sample>& samples, const EvaluationOptions& options) {
  if (model.spec().task == models::hstu::Task::retrieval) {
    return evaluate_retrieval(dynamic_cast<models::hstu::RetrievalModel&>(model), dataset, samples,
                              options);
  }
  return evaluate_ranking(dynamic_cast<models::hstu::RankingModel&>(model), dataset, samples,
                          options);
}

}  // namespace seqfuse::training
