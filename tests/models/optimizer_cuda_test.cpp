// The optimisers on a GPU against those on the CPU, both in float32.
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/missing_gpu.h"
#include "training/device/device_step.h"
#include "training/optimizer/optimizer.h"

namespace seqfuse::training::optimizer_cuda_test {
namespace {

constexpr int kSteps = 6;
constexpr double kLearningRate = 0.02, kScale = 1.0 / 64, kMaxNorm = 2;

// Weights in [-0.25, 0.25). The matrix takes several chunks of a multi-tensor kernel.
struct Weights : torch::nn::Module {
  explicit Weights(at::Device device) {
    torch::manual_seed(1);
    const auto draw = [](at::IntArrayRef shape) { return (torch::rand(shape) - 0.5) / 2; };
    register_parameter("matrix", draw({1100, 128}));
    register_parameter("bias", draw({128}));
    struct Tables : torch::nn::Module {};
    auto tables = std::make_shared<Tables>();
    const auto draw_rows = [&](int64_t rows) { return draw({rows, 16}); };
    action = embeddings::make_table("action", 500, draw_rows, {});
    item = embeddings::make_table("item", 3000, draw_rows, {});
    tables->register_parameter("action", action->weight());
    tables->register_parameter("item", item->weight());
    register_module("tables", tables);
    to(device);
  }
  embeddings::Tables tables() const { return {action.get(), item.get()}; }

  std::shared_ptr<embeddings::EmbeddingTable> action, item;
};

// State of all parameters by name.
embeddings::StateTensors state_of(const Weights& weights, const Optimizer& optimizer) {
  embeddings::StateTensors state = optimizer.state();
  for (const auto* table : weights.tables()) {
    for (const auto& [name, tensor] : table->contents().state) {
      state["tables." + table->name() + "." + name] = tensor;
    }
  }
  return state;
}

// A step's gradients, on the CPU. Those of items are sparse, with repeated ids and some that no
// step has. Their norm times kScale is about 6, in every other step 0.6, so that some are clipped
// to kMaxNorm.
std::vector<torch::Tensor> draw_gradients(int step) {
  const double size = step % 2 == 0 ? 1 : 0.1;
  torch::manual_seed(100 + step);
  const auto draw = [&](at::IntArrayRef shape) { return torch::randn(shape) * size; };
  const torch::Tensor ids =
      torch::cat({torch::arange(0, 400), torch::arange(0, 200) + 300 * step}).unsqueeze(0);
  return {draw({1100, 128}), draw({128}), draw({500, 16}),
          torch::sparse_coo_tensor(ids, draw({600, 16}), {3000, 16})};
}

void set_gradients(torch::nn::Module& module, const std::vector<torch::Tensor>& gradients,
                   double factor = 1) {
  std::vector<torch::Tensor> weights = module.parameters();
  ASSERT_EQ(weights.size(), gradients.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i].mutable_grad() = (gradients[i] * factor).to(weights[i].device());
  }
}

using config::OptimizerKind;

config::OptimizerArgs arguments(OptimizerKind dense, OptimizerKind table) {
  config::OptimizerArgs args;
  args.optimizer_str = dense;
  args.embedding_optimizer_str = table;
  args.weight_decay = 0.1;
  args.max_grad_norm = kMaxNorm;
  args.average_decay = 0.8;
  return args;
}

double largest(const torch::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

// Weights stay below 1. A step rounds a weight at most three times by at most 2^-25, on either
// side: 6 * 3 * 2 * 2^-25 = 1.1e-6 after six. An update is at most 0.1, and its relative error,
// from the order of sums over a row or over all gradients, about 1e-6: 6e-7 more. (A miscounted
// step, or misplaced decay, makes 5e-4.)
constexpr double kWeightTolerance = 2e-6;
// The optimiser's state, relative to its largest number: it contains the gradient norm, at worst
// squared, and six steps of rounding.
constexpr double kStateTolerance = 4e-6;
// PyTorch's fused Adam, which updates dense gradients, computes 1 - beta2 from float32: a relative
// error of 1.3e-5 for .999.
constexpr double kFusedStateTolerance = 2e-5;

void expect_same(Weights& on_gpu, Optimizer& gpu, Weights& on_cpu, Optimizer& cpu) {
  EXPECT_EQ(gpu.steps(), cpu.steps());
  const auto weights = on_gpu.named_parameters();
  for (const auto& expected : on_cpu.named_parameters()) {
    EXPECT_LT(largest(expected.value()), 1) << expected.key();
    EXPECT_LT(largest(weights[expected.key()].cpu() - expected.value()), kWeightTolerance)
        << expected.key();
  }
  // Includes averages, as NAME.unaveraged.
  const embeddings::StateTensors state = state_of(on_gpu, gpu),
                                 expected_state = state_of(on_cpu, cpu);
  ASSERT_EQ(state.size(), expected_state.size());
  for (const auto& [name, expected] : expected_state) {
    const double tolerance =
        name.starts_with("tables.item.") ? kStateTolerance : kFusedStateTolerance;
    EXPECT_LE(largest(state.at(name).cpu() - expected), tolerance * largest(expected)) << name;
  }
}

class OptimizerCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  }

  const at::Device gpu_ = at::Device(at::kCUDA, 0);
  distributed::ProcessGroup& group_ = distributed::ProcessGroup::single();
};

// Updates as the training loop does on the CPU.
double update_on_cpu(Optimizer& optimizer) {
  const double norm = optimizer.gradient_norm(kScale);
  optimizer.step(kLearningRate, kScale * std::min(1.0, kMaxNorm / norm));
  return norm;
}

TEST_F(OptimizerCuda, EveryKindMakesTheStepsOfTheCpu) {
  // Each kind once for dense weights, once for tables.
  using enum config::OptimizerKind;
  const std::vector<std::pair<OptimizerKind, OptimizerKind>> kinds = {
      {adamw, adamw}, {adam, row_wise_adagrad}, {sgd, adam}, {row_wise_adagrad, sgd}};
  for (const auto& [dense, table] : kinds) {
    SCOPED_TRACE(testing::Message() << name_of(dense) << " and " << name_of(table));
    const config::OptimizerArgs args = arguments(dense, table);
    Weights on_cpu(at::kCPU), on_gpu(gpu_);
    Optimizer cpu(on_cpu, args, on_cpu.tables()), gpu(on_gpu, args, on_gpu.tables());
    DeviceStep device_step(gpu, args, group_, gpu_, /*scale_loss=*/false);
    int clipped = 0;
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<torch::Tensor> gradients = draw_gradients(step);
      set_gradients(on_cpu, gradients);
      set_gradients(on_gpu, gradients);
      const double norm = update_on_cpu(cpu);
      clipped += norm > kMaxNorm ? 1 : 0;
      device_step.measure();
      device_step.start(step + 1, kLearningRate, kScale);
      device_step.update();
      EXPECT_NEAR(device_step.read().gradient_norm, norm, 1e-5 * norm);
    }
    EXPECT_EQ(clipped, kSteps / 2);
    expect_same(on_gpu, gpu, on_cpu, cpu);
  }
}

// float16: gradients include the loss scale. Steps in which one is infinite, of a dense weight or
// of a row, halve the scale and are skipped, by averages and bias corrections too.
TEST_F(OptimizerCuda, StepsThatOverflowAreLeftOut) {
  for (const auto kind : {OptimizerKind::adamw, OptimizerKind::row_wise_adagrad}) {
    SCOPED_TRACE(name_of(kind));
    const config::OptimizerArgs args = arguments(kind, kind);
    Weights on_cpu(at::kCPU), on_gpu(gpu_);
    Optimizer cpu(on_cpu, args, on_cpu.tables()), gpu(on_gpu, args, on_gpu.tables());
    DeviceStep device_step(gpu, args, group_, gpu_, /*scale_loss=*/true);
    const double first_scale = device_step.loss_scale()->scale;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<torch::Tensor> gradients = draw_gradients(step);
      const bool overflows = step == 0 || step == 3;
      if (overflows) {
        (step == 0 ? gradients[0] : gradients[3]._values())[7][3] =
            std::numeric_limits<float>::infinity();
      } else {
        set_gradients(on_cpu, gradients);
        update_on_cpu(cpu);
      }
      set_gradients(on_gpu, gradients, device_step.loss_scale()->scale);
      device_step.measure();
      device_step.start(step + 1, kLearningRate, kScale);
      device_step.update();
    }
    EXPECT_EQ(device_step.loss_scale()->scale, first_scale / 4);
    EXPECT_EQ(gpu.steps(), kSteps - 2);
    EXPECT_EQ(device_step.read().bad_step, -1);
    expect_same(on_gpu, gpu, on_cpu, cpu);
  }
}

TEST_F(OptimizerCuda, WithoutALossScaleAnInfiniteGradientIsToldAndChangesNothing) {
  const config::OptimizerArgs args = arguments(OptimizerKind::adamw, OptimizerKind::adam);
  Weights before(at::kCPU), on_gpu(gpu_);
  Optimizer untouched(before, args, before.tables()), gpu(on_gpu, args, on_gpu.tables());
  DeviceStep device_step(gpu, args, group_, gpu_, /*scale_loss=*/false);
  std::vector<torch::Tensor> gradients = draw_gradients(0);
  gradients[1][5] = std::numeric_limits<float>::infinity();
  set_gradients(on_gpu, gradients);
  device_step.measure();
  device_step.start(/*step=*/17, kLearningRate, kScale);
  device_step.update();
  const DeviceStep::Reading reading = device_step.read();
  EXPECT_EQ(reading.bad_step, 17);
  EXPECT_FALSE(reading.bad_loss);
  expect_same(on_gpu, gpu, before, untouched);
  EXPECT_TRUE(on_gpu.parameters()[0].cpu().equal(before.parameters()[0]));
}

}  // namespace
}  // namespace seqfuse::training::optimizer_cuda_test
