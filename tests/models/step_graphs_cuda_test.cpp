#include "training/device/step_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <stdexcept>

#include "ops/torch/device_seeds.h"
#include "ops/torch/ops.h"
#include "tests/missing_gpu.h"
#include "tests/models/training_fixture.h"
#include "training/device/device.h"

namespace seqfuse::training::step_graphs_cuda_test {
namespace {

class StepGraphsCuda : public TrainingLoop {
 protected:
  void SetUp() override {
    if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
    set_arithmetic(gpu_, training_config().trainer);
  }

  std::shared_ptr<TaskModel> model_on_gpu(const config::Config& config, Task task) {
    auto model = make_model(config, task);
    model->to(gpu_);
    return model;
  }

  const at::Device gpu_ = at::Device(at::kCUDA, 0);
};

TEST_F(StepGraphsCuda, ABatchOfASizeThatCameTwiceIsALaunch) {
  const auto model = model_on_gpu(training_config(), Task::retrieval);
  const torch::Tensor total = torch::zeros({}, torch::TensorOptions(gpu_).dtype(torch::kLong));
  int ran = 0, recorded = 0;
  int64_t expected = 0, replayed = 0;
  {
    StepGraphs graphs(gpu_);
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      const data::Batch batch = models::hstu::random_batch(
          seed % 3 == 0 ? std::vector<int64_t>{5, 8} : std::vector<int64_t>{6}, 0, seed);
      const models::hstu::Windows windows = model->upload(batch);
      expected += windows.items.sum().item<int64_t>();
      graphs.run(windows, [&](const models::hstu::Windows& where, bool recording) {
        (recording ? recorded : ran) += 1;
        total.add_(where.items.sum());
      });
    }
    replayed = graphs.replayed();
  }
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(recorded, 2);
  EXPECT_EQ(replayed, 10);
  EXPECT_EQ(total.item<int64_t>(), expected);
}

TEST_F(StepGraphsCuda, AnErrorWhileRecordingLeavesNoTrace) {
  const auto model = model_on_gpu(training_config(), Task::retrieval);
  const torch::Tensor total = torch::zeros({}, torch::TensorOptions(gpu_).dtype(torch::kLong));
  StepGraphs graphs(gpu_);
  const models::hstu::Windows windows = model->upload(models::hstu::random_batch({6, 7}));
  int call = 0;
  const auto work = [&](const models::hstu::Windows&, bool) {
    total.add_(1);
    if (++call == 2) throw std::runtime_error("in the second call");
  };
  graphs.run(windows, work);
  EXPECT_THROW(graphs.run(windows, work), std::runtime_error);
  graphs.run(windows, work);  // recorded and launched
  graphs.run(windows, work);
  EXPECT_EQ(call, 3);
  EXPECT_EQ(total.item<int64_t>(), 3);
}

TEST_F(StepGraphsCuda, WithoutMemoryToRecordStepsGoOn) {
  const auto model = model_on_gpu(training_config(), Task::retrieval);
  const torch::Tensor total = torch::zeros({}, torch::TensorOptions(gpu_).dtype(torch::kLong));
  StepGraphs graphs(gpu_);
  const models::hstu::Windows windows = model->upload(models::hstu::random_batch({6, 7})),
                              others = model->upload(models::hstu::random_batch({6, 8}));
  int ran = 0, recorded = 0;
  const auto work = [&](const models::hstu::Windows& where, bool recording) {
    (recording ? recorded : ran) += 1;
    total.add_(where.batch_size());
    if (recording && recorded == 2) torch::empty({int64_t{1} << 45}, gpu_);
  };
  for (int time = 0; time < 3; ++time) graphs.run(windows, work);  // two of them launch the graph
  for (int time = 0; time < 4; ++time) graphs.run(others, work);
  graphs.run(windows, work);
  EXPECT_EQ(recorded, 2);
  EXPECT_EQ(ran, 1 + 4 + 1);
  EXPECT_EQ(total.item<int64_t>(), 2 * 8);
}

TEST_F(StepGraphsCuda, MoreSizesThanAreKept) {
  const auto model = model_on_gpu(training_config(), Task::retrieval);
  const torch::Tensor total = torch::zeros({}, torch::TensorOptions(gpu_).dtype(torch::kLong));
  StepGraphs graphs(gpu_);
  int ran = 0, recorded = 0;
  const auto run = [&](int64_t windows, int times) {
    const models::hstu::Windows uploaded =
        model->upload(models::hstu::random_batch(std::vector<int64_t>(windows, 3)));
    for (int time = 0; time < times; ++time) {
      graphs.run(uploaded, [&](const models::hstu::Windows& where, bool recording) {
        (recording ? recorded : ran) += 1;
        total.add_(where.batch_size());
      });
    }
  };
  for (int64_t windows = 1; windows <= 80; ++windows) run(windows, 3);
  EXPECT_EQ(ran, 80);
  EXPECT_EQ(recorded, 80);
  EXPECT_EQ(graphs.replayed(), 2 * 80);
  // The 64 newest are kept: 17 is a launch. 1 is forgotten, and takes the place of 18, the oldest now.
  run(17, 1);
  EXPECT_EQ(ran, 80);
  run(1, 1);
  EXPECT_EQ(ran, 81);
  run(17, 1);
  EXPECT_EQ(ran, 81);
  run(18, 1);
  EXPECT_EQ(ran, 82);
  EXPECT_EQ(recorded, 80);
  EXPECT_EQ(graphs.replayed(), 2 * 80 + 2);
  EXPECT_EQ(total.item<int64_t>(), 3 * 80 * 81 / 2 + 17 + 1 + 17 + 18);
}

// Every kind of optimiser, loss and table that a graph may contain.
std::vector<std::pair<Task, config::Config>> graph_configs() {
  std::vector<std::pair<Task, config::Config>> configs;
  const auto add = [&](Task task, const std::string& architecture, auto&& change) {
    config::Config config = training_config(architecture);
    config.trainer.max_train_iters = 24;
    config.trainer.eval_interval = 8;
    config.trainer.log_interval = 1;
    config.network.dtype_str = config::ComputeType::float32;
    config.trainer.allow_tf32 = false;
    config.ranking.prediction_head_arch = {6, 1};
    config.ranking.num_tasks = 1;
    config.ranking.label_threshold = 1;
    change(config);
    configs.emplace_back(task, config);
  };
  add(Task::retrieval, "hstu_research", [](config::Config&) {});
  add(Task::retrieval, "hstu_research", [](config::Config& config) {
    config.retrieval.negatives = config::Negatives::full;
    config.retrieval.mask_seen = true;
    config.optimizer.average_decay = 0.9;
    config.optimizer.max_grad_norm = 0.5;
    config.optimizer.lr_schedule = config::LearningRateSchedule::cosine;
  });
  add(Task::ranking, "hstu", [](config::Config& config) {
    config.optimizer.optimizer_str = config::OptimizerKind::sgd;
    config.optimizer.embedding_optimizer_str = config::OptimizerKind::row_wise_adagrad;
  });
  add(Task::ranking, "hstu", [](config::Config& config) {
    config.dataset.max_num_candidates = 2;
    config.optimizer.optimizer_str = config::OptimizerKind::row_wise_adagrad;
    config.optimizer.embedding_optimizer_str = config::OptimizerKind::adam;
  });
  return configs;
}

TEST_F(TrainingLoop, WithoutAGpuGraphsAreAskedForInVain) {
  int number = 0;
  for (auto& [task, config] : graph_configs()) {
    const auto plain = make_model(config, task), graphs = make_model(config, task);
    train(config, fmt::format("plain{}", ++number), *plain);
    config.trainer.cuda_graph = true;
    EXPECT_EQ(train(config, fmt::format("graphs{}", number), *graphs).replayed_steps, 0);
    EXPECT_EQ(metrics(fmt::format("graphs{}", number)), metrics(fmt::format("plain{}", number)));
    expect_same_weights(*graphs, *plain);
  }
}

TEST_F(StepGraphsCuda, TrainAsStepsWithoutThem) {
  int number = 0;
  for (auto& [task, config] : graph_configs()) {
    SCOPED_TRACE(++number);
    const auto plain = model_on_gpu(config, task), graphs = model_on_gpu(config, task);
    EXPECT_EQ(train(config, fmt::format("plain{}", number), *plain).replayed_steps, 0);
    config.trainer.cuda_graph = true;
    // All of 24 steps but the first of each batch size.
    EXPECT_GE(train(config, fmt::format("graphs{}", number), *graphs).replayed_steps, 5);
    const auto expected = metrics(fmt::format("plain{}", number)),
               found = metrics(fmt::format("graphs{}", number));
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!expected[i].contains("loss")) continue;
      const double loss = expected[i]["loss"];
      EXPECT_NEAR(found[i]["loss"].get<double>(), loss, 1e-4 * loss) << "line " << i;
    }
  }
}

// A resumed run calls the work of batches that the other run replays.
TEST_F(StepGraphsCuda, AResumedRunIsTheUndisturbedOneToTheBit) {
  int number = 0;
  for (auto& [task, config] : graph_configs()) {
    SCOPED_TRACE(++number);
    config.trainer.cuda_graph = true;
    config.optimizer.lr_schedule =
        config::LearningRateSchedule::constant;  // a cosine depends on the number of steps
    const auto whole = model_on_gpu(config, task), resumed = model_on_gpu(config, task);
    EXPECT_GE(train(config, fmt::format("whole{}", number), *whole).replayed_steps, 5);
    config.trainer.max_train_iters = 15;
    train(config, fmt::format("parts{}", number), *model_on_gpu(config, task));
    config.trainer.max_train_iters = 24;
    train(config, fmt::format("parts{}", number), *resumed);
    expect_same_weights(*resumed, *whole);
  }
}

TEST_F(StepGraphsCuda, SixteenBitsLearnTheRing) {
  for (const char* dtype : {"bfloat16", "float16"}) {
    config::Config config = training_config();
    config.network.dtype_str = config::find_choice<config::ComputeType>(dtype).value();
    config.trainer.cuda_graph = true;
    config.trainer.max_train_iters = 300;
    config.trainer.eval_interval = 0;
    const auto model = model_on_gpu(config, Task::retrieval);
    const TrainResult result = train(config, dtype, *model);
    EXPECT_GT(result.replayed_steps, 200) << dtype;
    EXPECT_EQ(result.metrics.at(0).first, "HR@1");
    EXPECT_GT(result.metrics.at(0).second, .9) << dtype;
  }
}

// Seeds.

TEST_F(StepGraphsCuda, OperatorsReadSeedsFromTheirPlaces) {
  const std::vector<int64_t> announced{11, -5}, real{3, 4};
  const torch::Tensor places = torch::tensor(real, torch::kLong).to(gpu_);
  const torch::Tensor x = torch::randn({40, 64}, gpu_), u = torch::randn({40, 64}, gpu_);
  const torch::Tensor pool = torch::arange(100, torch::TensorOptions(gpu_).dtype(torch::kLong));
  const auto all = [&](int64_t first, int64_t second) {
    const torch::Tensor o = x.clone().requires_grad_(), v = x.clone().requires_grad_();
    const torch::Tensor gated = ops::layer_norm_gate(o, u, {}, {}, 1e-6, .3, first);
    const torch::Tensor dropped = ops::dropout(v, .4, second);
    (gated * u).sum().backward();  // runs on autograd's thread
    (dropped * u).sum().backward();
    return std::vector<torch::Tensor>{gated, dropped, o.grad(), v.grad(),
                                      ops::sample_uniform(pool, 7, 9, first)};
  };
  const auto expected = all(3, 4);
  const ops::DeviceSeeds seeds(announced, places);
  const auto found = all(11, -5);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
  EXPECT_THROW(ops::dropout(x, .4, 12), c10::Error);
  EXPECT_THROW(ops::DeviceSeeds(announced, places), c10::Error);
  EXPECT_TRUE(ops::dropout(u.cpu(), .4, 12).defined());  // the CPU accepts any seed
}

}  // namespace
}  // namespace seqfuse::training::step_graphs_cuda_test
