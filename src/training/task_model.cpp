#include "training/task_model.h"

namespace seqfuse::training {
namespace {

template <class Model, auto kEvaluate>
class TaskModelOf : public TaskModel {
 public:
  explicit TaskModelOf(std::shared_ptr<Model> model) : model_(std::move(model)) {}

  models::Model& module() override { return *model_; }
  const models::ModelSpec& spec() override { return model_->spec(); }

  Loss loss(const data::Batch& batch, const models::StepSeed& seed) override {
    const torch::Tensor losses = losses_of(*model_, batch, seed);
    return {.sum = losses.sum(), .positions = losses.size(0)};
  }

  Metrics evaluate(const data::Dataset& dataset, const std::vector<data::Sample>& samples,
                   const EvaluationOptions& options) override {
    const torch::NoGradGuard no_grad;
    model_->eval();
    Metrics metrics = kEvaluate(*model_, dataset, samples, options);
    model_->train();
    return metrics;
  }

 private:
  static torch::Tensor losses_of(models::RetrievalModel& model, const data::Batch& batch,
                                 const models::StepSeed& seed) {
    return model.loss(batch, seed);
  }
  static torch::Tensor losses_of(models::RankingModel& model, const data::Batch& batch,
                                 const models::StepSeed& seed) {
    return model.loss(model.forward(batch, seed));
  }

  std::shared_ptr<Model> model_;
};

}  // namespace

std::unique_ptr<TaskModel> TaskModel::make(const models::ModelSpec& spec, uint64_t seed,
                                           const embeddings::Placement& placement) {
  if (spec.task == models::Task::retrieval) {
    return std::make_unique<TaskModelOf<models::RetrievalModel, evaluate_retrieval>>(
        models::make_retrieval_model(spec, seed, torch::kFloat, placement));
  }
  return std::make_unique<TaskModelOf<models::RankingModel, evaluate_ranking>>(
      models::make_ranking_model(spec, seed, torch::kFloat, placement));
}

}  // namespace seqfuse::training
