#include "ops/torch/step_scalars.h"

#include <cmath>
#include <limits>

#include "tests/ops/op_test.h"

namespace seqfuse::step_scalars_test {
namespace {

using namespace seqfuse::test;
using ops::StepScalars;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double value(const Tensor& scalar) {
  return scalar.item<double>();
}

// The learning rate does not matter here.
void finish(const StepScalars& scalars, int64_t step, double scale, double max_norm,
            bool scales_loss) {
  ops::start_step(scalars, step, scale, /*learning_rate=*/.001);
  ops::finish_step(scalars, max_norm, scales_loss);
}

// The result of a step's backward pass.
void set(const StepScalars& scalars, float norm, float step_loss) {
  scalars.norm.fill_(norm);
  scalars.step_loss.fill_(step_loss);
}

TEST(StepScalars, GradientsAreScaledAndClipped) {
  const StepScalars scalars(at::kCPU, 1);
  const auto expect = [&](float norm, double max_norm, double of_step, double factor) {
    set(scalars, norm, 0);
    finish(scalars, 1, /*scale=*/.5, max_norm, /*scales_loss=*/false);
    EXPECT_EQ(value(scalars.norm), of_step) << norm;
    EXPECT_EQ(value(scalars.factor), factor) << norm;
    EXPECT_EQ(value(scalars.skip), 0) << norm;
  };
  expect(3, 2, 1.5, .5);
  expect(8, 2, 4, .25);
  expect(8, 0, 4, .5);
  expect(0, 2, 0, .5);
  EXPECT_EQ(value(scalars.bad_step), -1);
}

TEST(StepScalars, LossesAddUp) {
  const StepScalars scalars(at::kCPU, 1);
  for (int step = 1; step <= 3; ++step) {
    set(scalars, 1, 16777216.F);  // 2^24, above which float32 has no odd numbers
    finish(scalars, 2 * step, 1, 0, false);
    set(scalars, 1, 1);
    finish(scalars, 2 * step + 1, 1, 0, false);
    EXPECT_EQ(value(scalars.step_loss), 0);
  }
  EXPECT_EQ(value(scalars.loss_sum), 3 * 16777217.);
}

TEST(StepScalars, TheFirstStepThatIsNotFiniteIsKept) {
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    const StepScalars gradient(at::kCPU, 1), loss(at::kCPU, 1);
    set(gradient, bad, 1);
    finish(gradient, 7, 1, 2, false);
    EXPECT_EQ(value(gradient.skip), 1);
    set(gradient, 1, bad);
    finish(gradient, 8, 1, 2, false);
    EXPECT_EQ(value(gradient.skip), 0);
    EXPECT_EQ(value(gradient.bad_step), 7);
    EXPECT_EQ(value(gradient.bad_loss), 0);
    set(loss, bad, bad);
    finish(loss, 9, 1, 2, false);
    EXPECT_EQ(value(loss.bad_step), 9);
    EXPECT_EQ(value(loss.bad_loss), 1);
  }
}

TEST(StepScalars, WithLossScalingAGradientThatIsNotFiniteIsNoError) {
  const StepScalars scalars(at::kCPU, 4);
  set(scalars, 8, 1);
  finish(scalars, 1, .5, 0, true);
  EXPECT_EQ(value(scalars.factor), .125);
  EXPECT_EQ(value(scalars.norm), 1);
  set(scalars, kInfinity, 1);
  finish(scalars, 2, .5, 0, true);
  EXPECT_EQ(value(scalars.skip), 1);
  EXPECT_EQ(value(scalars.bad_step), -1);
  set(scalars, 1, kInfinity);
  finish(scalars, 3, .5, 0, true);
  EXPECT_EQ(value(scalars.bad_step), 3);
  EXPECT_EQ(value(scalars.bad_loss), 1);
}

}  // namespace
}  // namespace seqfuse::step_scalars_test
