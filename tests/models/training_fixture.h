// Training on a small dataset, and a model that fails on request.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "tests/models/model_fixtures.h"
#include "tests/models/outside_signal.h"
#include "tests/run_metrics.h"
#include "tests/temporary_directory.h"
#include "training/loop/split_options.h"
#include "training/loop/trainer.h"

namespace seqfuse::training {

using models::hstu::small_config;
using models::hstu::Task;
using models::hstu::TaskModel;
using nlohmann::json;

// 30 users whose items follow a ring of 12, from different starts.
inline data::MemoryDataset ring_dataset() {
  std::vector<data::MemoryDataset::User> users;
  for (int64_t u = 0; u < 30; ++u) {
    data::MemoryDataset::User user{.context = {u % 4 + 1}};
    for (int64_t i = 0; i < 6 + u % 7; ++i) {
      user.items.push_back((u * 5 + i) % 12 + 1);
      user.actions.push_back((u + i) % 3 == 0 ? 1 : 0);
      user.timestamps.push_back(1000 + 100 * i);
    }
    users.push_back(std::move(user));
  }
  return data::MemoryDataset(std::move(users), {{"group", 5}});
}

inline config::Config training_config(const std::string& architecture = "hstu_research") {
  config::Config config = small_config(architecture);
  config.network.hidden_dropout = 0.1;
  config.dataset.shuffle = true;
  config.trainer.train_batch_size = 8;
  config.trainer.max_train_iters = 10;
  config.trainer.eval_interval = 4;
  config.trainer.log_interval = 3;
  config.retrieval.eval_metrics = {"HR@1", "MRR"};
  return config;
}

// A gradient for a weight that memory cannot hold when summed: 2^45 rows, all of them row 0.
inline torch::Tensor gradient_that_does_not_fit(const torch::Tensor& weight) {
  constexpr int64_t kRows = int64_t{1} << 45;
  std::vector<int64_t> shape = weight.sizes().vec();
  shape[0] = kRows;
  // Each is a single number, expanded.
  const auto ids = torch::zeros({1, 1}, weight.options().dtype(torch::kLong)).expand({1, kRows});
  const auto values = torch::zeros({}, weight.options()).expand(shape);
  return torch::_sparse_coo_tensor_unsafe(ids, values, weight.sizes(),
                                          weight.options().layout(torch::kSparse));
}

// The first weight gets a gradient from the loss, the last one a gradient that does not fit in
// memory, the others none: updating runs out of memory after the first weight. On the CPU alone: on
// a GPU, only tables may have a sparse gradient.
inline void spoil_last_gradient(models::Model& module, TaskModel::Loss& loss) {
  const std::vector<torch::Tensor> weights = module.parameters();
  loss.sum = weights.front().sum();
  const torch::Tensor& last = weights.back();
  last.mutable_grad() = gradient_that_does_not_fit(last);
}

// The last table gets such a gradient: summing it for the gradient norm runs out of memory.
inline void spoil_table_gradient(const TaskModel& model, TaskModel::Loss& loss) {
  loss.sum = model.parameters().back().sum();
  const torch::Tensor weight = model.tables().back()->weight();
  weight.mutable_grad() = gradient_that_does_not_fit(weight);
}

// A retrieval model that does something to its n-th loss (from 1) and otherwise forwards to another
// model, whose modules it shares.
class Disturbed : public models::hstu::RetrievalModel {
 public:
  using Disturbance = std::function<void(Loss&)>;
  Disturbed(const std::shared_ptr<TaskModel>& model, int64_t call, Disturbance disturbance)
      : model_(std::dynamic_pointer_cast<RetrievalModel>(model)),
        call_(call),
        disturbance_(std::move(disturbance)) {
    for (const auto& child : model_->named_children()) register_module(child.key(), child.value());
  }

  const models::hstu::ModelSpec& spec() const override { return model_->spec(); }
  embeddings::Tables tables() const override { return model_->tables(); }
  models::hstu::Windows upload(const data::Batch& batch,
                               const models::hstu::StepInputs& inputs) override {
    return model_->upload(batch, inputs);
  }
  Loss loss(const models::hstu::Windows& windows, const models::StepSeed& seed,
            const torch::Tensor& num_positions) override {
    Loss loss = model_->loss(windows, seed, num_positions);
    if (++calls_ == call_) disturbance_(loss);
    return loss;
  }
  torch::Tensor losses(const models::hstu::Windows& windows, const models::StepSeed& seed,
                       const torch::Tensor& negatives) override {
    return model_->losses(windows, seed, negatives);
  }
  torch::Tensor query(const data::Batch& batch) override { return model_->query(batch); }
  torch::Tensor item_rows() override { return model_->item_rows(); }

 private:
  std::shared_ptr<RetrievalModel> model_;
  int64_t call_ = 0, calls_ = 0;
  Disturbance disturbance_;
};

class TrainingLoop : public testing::Test {
 protected:
  TrainingLoop() { log::set_level(log::Level::quiet); }
  ~TrainingLoop() override { log::set_level(log::Level::info); }

  std::shared_ptr<TaskModel> make_model(const config::Config& config, Task task = Task::retrieval) {
    return models::hstu::make_task_model(
        models::hstu::ModelSpec::make(task, config, dataset_.manifest()), 1234);
  }

  // Trains in a new run directory of this name, or resumes an existing one.
  TrainResult train(const config::Config& config, const std::string& name, TaskModel& model,
                    const Evaluate& evaluate = training::evaluate) {
    return train(config, name, model, dataset_, evaluate);
  }
  TrainResult train(const config::Config& config, const std::string& name, TaskModel& model,
                    const data::Dataset& dataset, const Evaluate& evaluate = training::evaluate) {
    const data::Split split =
        data::make_split(dataset, split_options(config.dataset, model.spec().task));
    const auto path = directory_.path() / name;
    const bool exists = std::filesystem::exists(path);
    RunDirectory run = exists
                           ? RunDirectory::open(path)
                           : RunDirectory::create(
                                 path, {.task = config::Task::retrieval, .seed = 1234}, "", false);
    Trainer trainer(model, dataset, split, config, distributed::ProcessGroup::single(), evaluate);
    if (exists) trainer.resume(load_checkpoint(*newest_checkpoint(path)));
    return unless_stopped_from_outside(trainer.run(run, false), own_signal_);
  }

  std::vector<json> metrics(const std::string& name) {
    return metrics_of(directory_.path() / name);
  }

  static void expect_same_weights(TaskModel& a, TaskModel& b) {
    const auto left = a.named_parameters(), right = b.named_parameters();
    for (const auto& parameter : left) {
      EXPECT_TRUE(parameter.value().equal(right[parameter.key()])) << parameter.key();
    }
  }

  int own_signal_ = 0;  // that the test itself sends to its run
  TemporaryDirectory directory_;
  const data::MemoryDataset dataset_ = ring_dataset();
};

}  // namespace seqfuse::training
