// Models with given scores, to test evaluation without training.
#pragma once

#include <cmath>
#include <functional>
#include <utility>

#include "models/hstu/ranking_model.h"
#include "models/hstu/retrieval_model.h"

namespace seqfuse::models::hstu {

// The query of a window is a row of a given table, by user.
class FakeRetrievalModel : public RetrievalModel {
 public:
  FakeRetrievalModel(ModelSpec spec, torch::Tensor user_rows, torch::Tensor item_rows)
      : spec_(std::move(spec)),
        user_rows_(std::move(user_rows)),
        item_rows_(std::move(item_rows)) {}

  const ModelSpec& spec() const override { return spec_; }
  embeddings::Tables tables() const override { return {}; }
  Windows upload(const data::Batch&, const StepInputs&) override { return {}; }
  torch::Tensor losses(const Windows&, const StepSeed&, const torch::Tensor&) override {
    return torch::zeros({0});
  }
  torch::Tensor query(const data::Batch& batch) override {
    return user_rows_.index_select(0, torch::tensor(batch.users));
  }
  torch::Tensor item_rows() override { return item_rows_; }

 private:
  ModelSpec spec_;
  torch::Tensor user_rows_, item_rows_;
};

// A candidate's logits are a function of its item; labels are the bits, or the class, of its
// action.
class FakeRankingModel : public RankingModel {
 public:
  using Logits = std::function<std::vector<float>(int64_t user, int64_t item)>;
  FakeRankingModel(ModelSpec spec, Logits logits)
      : spec_(std::move(spec)), logits_(std::move(logits)) {}

  const ModelSpec& spec() const override { return spec_; }
  embeddings::Tables tables() const override { return {}; }
  torch::Tensor losses(const Output&) override { return torch::zeros({0}); }
  Windows upload(const data::Batch& batch, const StepInputs&) override {
    batch_ = batch;
    return {};
  }
  Output forward(const Windows&, const StepSeed&) override {
    const data::Batch& batch = batch_;
    const int64_t width = spec_.ranking.prediction_head_arch.back();
    std::vector<float> logits;
    std::vector<int64_t> actions, items, windows;
    for (int64_t b = 0; b < batch.batch_size(); ++b) {
      const int64_t end = batch.offsets[b + 1];
      for (int64_t i = end - batch.num_candidates[b]; i < end; ++i) {
        const std::vector<float> row = logits_(batch.users[b], batch.items[i]);
        logits.insert(logits.end(), row.begin(), row.end());
        actions.push_back(batch.actions[i]);
        items.push_back(batch.items[i]);
        windows.push_back(b);
      }
    }
    Output output;
    output.logits = torch::tensor(logits).view({-1, width});
    output.labels = torch::tensor(actions);
    if (width == spec_.ranking.num_tasks) {
      output.labels = output.labels.unsqueeze(1)
                          .__rshift__(torch::arange(width))
                          .bitwise_and(1)
                          .to(torch::kFloat);
    }
    output.items = torch::tensor(items);
    output.windows = torch::tensor(windows);
    return output;
  }

 private:
  ModelSpec spec_;
  Logits logits_;
  data::Batch batch_;  // last uploaded batch
};

}  // namespace seqfuse::models::hstu
