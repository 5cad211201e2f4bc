#include "models/hstu/ranking_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/common/mlp.h"
#include "models/hstu/encoder.h"
#include "models/hstu/tables.h"
#include "models/hstu/windows.h"
#include "ops/torch/ops.h"

namespace seqfuse::models::hstu {
namespace {

constexpr double kStateNormEpsilon = 1e-6;

PredictedEvents predicted_events(const data::Batch& batch, bool candidates_only) {
  PredictedEvents predicted;
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    const int64_t begin = batch.offsets[b], end = batch.offsets[b + 1];
    const int64_t first = candidates_only ? std::max(begin, end - batch.num_candidates[b]) : begin;
    for (int64_t event = first; event < end; ++event) {
      predicted.items.push_back(batch.items[event]);
      predicted.actions.push_back(batch.actions[event]);
      predicted.windows.push_back(b);
    }
  }
  return predicted;
}

class HstuRankingModel : public RankingModel {
 public:
  HstuRankingModel(const ModelSpec& spec, Initializer init, const embeddings::Placement& placement)
      : spec_(spec),
        tables_(register_module("tables", std::make_shared<Tables>(spec, init, placement))),
        encoder_(register_module("encoder", Encoder::make(spec, tables_, init))),
        head_(register_module("head",
                              make_mlp(spec.network.hidden_size, spec.ranking.prediction_head_arch,
                                       spec.ranking.prediction_head_act_type,
                                       spec.ranking.prediction_head_bias, init))) {}

  const ModelSpec& spec() const override { return spec_; }
  embeddings::Tables tables() const override { return tables_->all(); }

  Windows upload(const data::Batch& batch, const StepInputs& inputs) override {
    const bool candidates_only = predicts_candidates(spec_, batch);
    const PredictedEvents predicted = predicted_events(batch, candidates_only);
    Windows windows =
        make_windows(batch, Reading::candidates, tables_->device(), predicted, inputs);
    windows.predicts_candidates = candidates_only;
    return windows;
  }

  Output forward(const Windows& windows, const StepSeed& seed) override {
    tables_->fetch(windows);
    const States states = encoder_->forward(windows, seed);
    const at::Tensor read = windows.predicts_candidates ? states.candidates : states.history;
    Output output;
    output.logits = head_->forward(ops::l2_normalize(read.to(tables_->dtype()), kStateNormEpsilon));
    output.labels = labels(windows.predicted_actions, output.logits.scalar_type());
    output.items = windows.predicted_items;
    output.windows = windows.predicted_windows;
    return output;
  }

  at::Tensor losses(const Output& output) override {
    if (is_classes()) {
      return at::cross_entropy_loss(output.logits, output.labels, {}, at::Reduction::None)
          .unsqueeze(1);
    }
    return at::binary_cross_entropy_with_logits(output.logits, output.labels, {}, {},
                                                at::Reduction::None);
  }

 private:
  bool is_classes() const {
    return spec_.ranking.prediction_head_arch.back() != spec_.ranking.num_tasks;
  }

  at::Tensor labels(const at::Tensor& actions, torch::ScalarType dtype) const {
    if (is_classes()) return actions;
    if (spec_.ranking.label_threshold) {
      return (actions >= *spec_.ranking.label_threshold).to(dtype).unsqueeze(1);
    }
    const at::Tensor bits = torch::arange(spec_.ranking.num_tasks, actions.options());
    return actions.unsqueeze(1).__rshift__(bits).bitwise_and(1).to(dtype);
  }

  ModelSpec spec_;
  std::shared_ptr<Tables> tables_;
  std::shared_ptr<Encoder> encoder_;
  torch::nn::Sequential head_;
};

}  // namespace

RankingModel::Output RankingModel::forward(const data::Batch& batch, const StepSeed& seed) {
  return forward(upload(batch), seed);
}

at::Tensor RankingModel::training_losses(const Windows& windows, const StepSeed& seed) {
  return losses(forward(windows, seed));
}

std::shared_ptr<RankingModel> make_ranking_model(const ModelSpec& spec,
                                                 std::optional<uint64_t> seed,
                                                 torch::ScalarType dtype,
                                                 const embeddings::Placement& placement) {
  return std::make_shared<HstuRankingModel>(spec, Initializer(seed, dtype), placement);
}

}  // namespace seqfuse::models::hstu
