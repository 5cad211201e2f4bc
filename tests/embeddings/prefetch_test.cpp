// Rows of the next batch that come into a cache while this one computes: the same bits as without, in a
// table and in training, on the CPU and on a GPU.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "embeddings/dynamic_table.h"
#include "embeddings/update/update_step.h"
#include "tests/missing_gpu.h"
#include "tests/models/training_fixture.h"
#include "training/device/device.h"

namespace seqfuse::embeddings::prefetch_test {
namespace {

class Prefetch : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device().is_cuda()) {
      if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
    }
  }
  at::Device device() const { return at::Device(GetParam()); }

  at::Tensor batch(int64_t number) const {
    return (torch::arange(60, torch::kLong) * 37 * number).remainder(451).to(device());
  }

  enum class Ahead { nothing, next, some, others };
  std::unique_ptr<DynamicTable> trained(int64_t cached_rows, Ahead ahead) const {
    DynamicRowsOptions options;
    options.table.name = "item";
    options.table.capacity = 200;
    options.table.dim = 4;
    options.table.device = device();
    options.table.init = {.kind = RowInit::normal, .a = 0, .b = 0.5, .seed = 3};
    options.table.in_order = true;
    options.table.initial_capacity = 30;
    options.table.cached = cached_rows > 0;
    if (cached_rows > 0) options.table.device_rows = cached_rows;
    auto table = std::make_unique<DynamicTable>(options, 500, distributed::ProcessGroup::single());
    table->make_state(OptimizerKind::adam, false);
    const config::OptimizerArgs args;
    for (int64_t number = 1; number <= 40; ++number) {
      table->zero_gradients();
      for (int64_t part = 0; part <= number % 2; ++part) {
        const at::Tensor gradients = torch::arange(240, torch::kFloat).view({60, 4}).sin() * 0.1;
        table->fetch(batch(number + part));
        const at::Tensor loss =
            (table->lookup(batch(number + part)) * gradients.to(device())).sum();
        const at::Tensor next = batch(number + 1);  // of a step's other batch or of the next step
        if (ahead == Ahead::next) table->prefetch(next);
        if (ahead == Ahead::some) table->prefetch(next.slice(0, 0, 25));
        if (ahead == Ahead::others) table->prefetch(batch(7));
        loss.backward();
      }
      if (number == 20) {  // an evaluation between two steps
        const torch::NoGradGuard no_grad;
        table->fetch(batch(3));
      }
      table->return_gradients();
      if (device().is_cpu()) {
        UpdateStep update(args, number, 0.01, 0.25);
        table->apply_gradients(update);
        continue;
      }
      const auto scalar = [&](double value) {
        return torch::full({}, value, torch::TensorOptions(device()).dtype(torch::kFloat));
      };
      UpdateStep update(args, {.count = scalar(static_cast<double>(number)),
                               .learning_rate = scalar(0.01),
                               .gradient_scale = scalar(0.25),
                               .skip = scalar(0)});
      table->apply_gradients(update);
    }
    return table;
  }
};

TEST_P(Prefetch, RowsThatComeEarlyAreTheSame) {
  const auto plain = trained(0, Ahead::nothing);
  const TableContents expected = plain->contents();
  EXPECT_GT(plain->dynamic_rows().table().counts().evicted, 100);
  for (const int64_t cached_rows : {20, 100, 180}) {
    for (const Ahead ahead : {Ahead::nothing, Ahead::next, Ahead::some, Ahead::others}) {
      SCOPED_TRACE(testing::Message() << cached_rows << ", " << static_cast<int>(ahead));
      const TableContents actual = trained(cached_rows, ahead)->contents();
      EXPECT_TRUE(actual.ids.equal(expected.ids));
      EXPECT_TRUE(actual.rows.equal(expected.rows));
      for (const auto& [name, tensor] : expected.state) {
        EXPECT_TRUE(actual.state.at(name).equal(tensor)) << name;
      }
    }
  }
}

// Without a row there is nothing to bring, and nothing is counted or inserted.
TEST_P(Prefetch, IdsWithoutARowGetNone) {
  DynamicRowsOptions options;
  options.table.capacity = 100;
  options.table.dim = 3;
  options.table.device = device();
  options.table.cached = true;
  options.table.device_rows = 50;
  DynamicRows rows(options);
  const at::Tensor ids = torch::arange(10, torch::kLong).to(device());
  rows.fetch(ids, {});
  rows.prefetch([&] { return ids + 5; });
  EXPECT_EQ(rows.table().size(), 10);
  EXPECT_EQ(rows.unknown(), 0);
  rows.prefetch([&] { return ids.slice(0, 0, 0); });
  EXPECT_EQ(rows.table().size(), 10);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Prefetch, testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, Prefetch, testing::Values("cuda"));

using models::hstu::ModelSpec;
using models::hstu::Task;
using training::json;

// Training with rows of 9 of the 13 items, 6 of them in the cache of a GPU.
class PrefetchedTraining : public training::TrainingLoop {
 protected:
  std::vector<json> losses(Task task, at::Device device, config::Pipeline pipeline,
                           int64_t stop_after = 0) {
    config::Config config = training::training_config("hstu");
    config.trainer.pipeline_type = pipeline;
    config.trainer.gradient_accumulation_steps = 2;
    config.trainer.train_batch_size = 1;
    config.dataset.max_history_seqlen = 4;  // a batch has at most 9 different items
    config.retrieval.num_negatives = 1;
    config.ranking.num_tasks = 1;
    config.ranking.label_threshold = 1;
    config.ranking.prediction_head_arch = {6, 1};
    config.trainer.max_train_iters = 20;
    config.trainer.log_interval = 1;
    training::set_arithmetic(device, config.trainer);
    const auto make = [&] {
      Placement placement;
      placement.device = device;
      placement.dynamic["item"] = {
          .capacity = 9, .rows_on_gpu = 6, .caching = true, .optimizer = OptimizerKind::adam};
      auto model = models::hstu::make_task_model(ModelSpec::make(task, config, dataset_.manifest()),
                                                 1234, torch::kFloat, placement);
      model->to(device);
      return model;
    };
    const std::string name = "run" + std::to_string(runs_++);
    if (stop_after > 0) {
      config::Config first = config;
      first.trainer.max_train_iters = stop_after;
      train(first, name, *make());
    }
    train(config, name, *make());
    return metrics(name);
  }

 private:
  int runs_ = 0;
};

TEST_F(PrefetchedTraining, HasTheSameLosses) {
  for (const Task task : {Task::retrieval, Task::ranking}) {
    const auto expected = losses(task, at::kCPU, config::Pipeline::none);
    EXPECT_GE(expected.size(), 20);
    EXPECT_EQ(losses(task, at::kCPU, config::Pipeline::prefetch), expected);
  }
}

TEST_F(PrefetchedTraining, HasTheSameLossesOnAGpuCuda) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  for (const Task task : {Task::retrieval, Task::ranking}) {
    const auto expected = losses(task, at::Device(at::kCUDA, 0), config::Pipeline::none);
    EXPECT_EQ(losses(task, at::Device(at::kCUDA, 0), config::Pipeline::prefetch), expected);
  }
}

// A batch that was sent ahead is read again after a stop.
TEST_F(PrefetchedTraining, GoesOnAfterAStopWithTheSameLosses) {
  const auto expected = losses(Task::retrieval, at::kCPU, config::Pipeline::prefetch);
  const auto resumed = losses(Task::retrieval, at::kCPU, config::Pipeline::prefetch, 7);
  const auto step_losses = [](const std::vector<json>& lines) {
    std::vector<json> found;
    for (const json& line : lines) {
      if (line.contains("loss")) found.push_back({line.at("step"), line.at("loss")});
    }
    return found;
  };
  EXPECT_GE(step_losses(expected).size(), 20);
  EXPECT_EQ(step_losses(resumed), step_losses(expected));
}

TEST_F(PrefetchedTraining, PeekingIsReadingTheNextBatchFirst) {
  const config::Config config = training::training_config();
  const data::Split split =
      data::make_split(dataset_, training::split_options(config.dataset, Task::retrieval));
  training::BatchStream plain(dataset_, split.train, config.trainer, true),
      peeked(dataset_, split.train, config.trainer, true);
  const auto compare = [&](int64_t batches) {
    for (int64_t number = 0; number < batches; ++number) {
      const int64_t position = peeked.position();
      if (number % 4 != 3) {
        const data::Batch* next = peeked.peek();
        ASSERT_NE(next, nullptr);
        EXPECT_EQ(peeked.peek(), next);
        EXPECT_EQ(peeked.position(), position);
      }
      const data::Batch expected = plain.next(), actual = peeked.next();
      EXPECT_EQ(actual.users, expected.users);
      EXPECT_EQ(actual.items, expected.items);
      EXPECT_EQ(peeked.position(), plain.position());
    }
  };
  compare(3 * plain.batches_per_epoch());
  peeked.peek();
  peeked.seek(2);
  plain.seek(2);
  compare(plain.batches_per_epoch());
}

}  // namespace
}  // namespace seqfuse::embeddings::prefetch_test
