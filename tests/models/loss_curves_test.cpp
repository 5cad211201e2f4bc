// 50 steps of the trainer for each task and architecture, in double on the CPU, against losses that
// tests/golden/make_loss_curves.py computed with padded PyTorch and torch.optim.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/models/training_fixture.h"
#include "tests/paths.h"

namespace seqfuse::training::loss_curves_test {
namespace {

// Both sides round every operation to 1e-16 and add in different orders; 50 steps amplify such
// differences. They were below 1e-12 of the loss when the curves were made.
constexpr double kTolerance = 1e-9;

const json& golden() {
  static const json curves =
      json::parse(read_file(test::source_directory() + "/tests/golden/loss_curves.json"));
  return curves;
}

data::MemoryDataset golden_dataset() {
  std::vector<data::MemoryDataset::User> users;
  for (const json& user : golden().at("users")) {
    users.push_back({.items = user.at("items"),
                     .actions = user.at("actions"),
                     .timestamps = user.at("timestamps"),
                     .context = {user.at("group").get<int64_t>()}});
  }
  return data::MemoryDataset(std::move(users), {{"group", 5}});
}

config::Config golden_config(Task task, const std::string& architecture) {
  const bool ranks = task == Task::ranking;
  config::Config config = small_config(architecture);
  config.dataset.max_history_seqlen = 8;
  config.dataset.max_num_candidates = ranks ? 2 : 0;
  config.dataset.shuffle = false;
  config.network.hidden_dropout = 0.1;
  config.network.num_position_buckets = 32;
  config.ranking.prediction_head_arch = {6, 1};
  config.ranking.num_tasks = 1;
  config.ranking.label_threshold = 1;
  config.optimizer.optimizer_str =
      ranks ? config::OptimizerKind::adamw : config::OptimizerKind::adam;
  config.optimizer.weight_decay = 0.01;
  config.optimizer.lr_schedule = config::LearningRateSchedule::cosine;
  config.optimizer.warmup_steps = 5;
  config.optimizer.max_grad_norm = 8;
  config.trainer.train_batch_size = 8;
  config.trainer.max_train_iters = 50;
  config.trainer.log_interval = 1;
  config.trainer.eval_interval = 0;
  return config;
}

// Repeats the generator of make_loss_curves.py over the parameters in the order of the golden file.
void set_weights(torch::nn::Module& module, const json& parameters) {
  const torch::NoGradGuard no_grad;
  auto weights = module.named_parameters();
  ASSERT_EQ(weights.size(), parameters.size());
  uint64_t state = 1;
  for (const json& parameter : parameters) {
    const auto name = parameter.at(0).get<std::string>();
    torch::Tensor* weight = weights.find(name);
    ASSERT_NE(weight, nullptr) << name;
    ASSERT_EQ(weight->sizes(), torch::IntArrayRef(parameter.at(1).get<std::vector<int64_t>>()))
        << name;
    auto* values = weight->mutable_data_ptr<double>();
    for (int64_t i = 0; i < weight->numel(); ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const double value = static_cast<double>(state >> 11) * 0x1p-52 - 1;
      values[i] = name.ends_with("norm_weight") ? 1 + 0.1 * value : 0.3 * value;
    }
  }
}

class LossCurves : public TrainingLoop {
 protected:
  void expect_golden(Task task, const std::string& architecture) {
    const std::string name =
        std::string(task == Task::ranking ? "ranking_" : "retrieval_") + architecture;
    const json& curve = golden().at("models").at(name);
    const data::MemoryDataset dataset = golden_dataset();
    const config::Config config = golden_config(task, architecture);
    const auto model = models::hstu::make_task_model(
        models::hstu::ModelSpec::make(task, config, dataset.manifest()), 1, torch::kDouble);
    ASSERT_NO_FATAL_FAILURE(set_weights(*model, curve.at("parameters")));
    EXPECT_EQ(train(config, name, *model, dataset).step, 50);
    std::vector<double> losses;
    for (const json& line : metrics(name)) {
      if (line.contains("loss")) losses.push_back(line.at("loss"));
    }
    const auto expected = curve.at("losses").get<std::vector<double>>();
    ASSERT_EQ(losses.size(), 50);
    ASSERT_EQ(expected.size(), 50);
    EXPECT_LT(expected.back(), 0.9 * expected.front());  // it has learnt something
    for (size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(losses[step], expected[step], kTolerance * expected[step]) << "step " << step;
    }
  }
};

TEST_F(LossCurves, RetrievalHstu) {
  expect_golden(Task::retrieval, "hstu");
}

TEST_F(LossCurves, RetrievalHstuResearch) {
  expect_golden(Task::retrieval, "hstu_research");
}

TEST_F(LossCurves, RankingHstu) {
  expect_golden(Task::ranking, "hstu");
}

}  // namespace
}  // namespace seqfuse::training::loss_curves_test
