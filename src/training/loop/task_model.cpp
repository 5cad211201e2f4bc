#include "training/loop/task_model.h"

namespace seqfuse::training {
namespace {

template <class Model, auto kEvaluate>
class TaskModelOf : public TaskModel {
 public:
  explicit TaskModelOf(std::shared_ptr<Model> model) : model_(std::move(model)) {}

  models::Model& module() override { return *model_; }
  const models::ModelSpec& spec() override { return model_->spec(); }

  Loss loss(const models::Windows& windows, const models::StepSeed& seed,
            const torch::Tensor& num_positions) override {
    torch::Tensor losses = losses_of(*model_, windows, seed);
    const int64_t positions = losses.size(0);
    if (num_positions.defined()) {
      const torch::Tensor counts = torch::arange(positions, num_positions.options());
      torch::Tensor keep = counts < num_positions;
      if (losses.dim() > 1) keep = keep.unsqueeze(1);
      losses = torch::where(keep, losses, 0.0);
    }
    return {.sum = losses.sum(), .positions = positions};
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
  static torch::Tensor losses_of(models::RetrievalModel& model, const models::Windows& windows,
                                 const models::StepSeed& seed) {
    return model.loss(windows, seed);
  }
  static torch::Tensor losses_of(models::RankingModel& model, const models::Windows& windows,
                                 const models::StepSeed& seed) {
    return model.loss(model.forward(windows, seed));
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
