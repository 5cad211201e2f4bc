#include "tests/ops/softmax_loss_test.h"

namespace seqfuse::full_softmax_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;
using namespace seqfuse::test::full;

class FullSoftmaxTest : public testing::TestWithParam<Case> {};

// A catalogue of one, of all rows and of some.
INSTANTIATE_TEST_SUITE_P(Shapes, FullSoftmaxTest,
                         testing::Values(Case{0, 5, 7, 4}, Case{5, 1, 3, 4}, Case{1, 2, 2, 1},
                                         Case{9, 20, 20, 16}, Case{40, 300, 500, 50},
                                         Case{150, 1000, 1001, 33}));

TEST_P(FullSoftmaxTest, LossAndGradientsKeepTheOracleRule) {
  at::manual_seed(1);
  const Inputs in = make_inputs(GetParam(), at::kFloat);
  const LossResult ours = run_ours(in);
  const LossResult plain = run(in, [&](auto& h, auto& t) { return plain_loss(in, h, t); });
  const auto expected = reference(in);
  expect_oracle_rule(ours, plain, expected);
}

TEST_P(FullSoftmaxTest, LeavesOutSeenItems) {
  at::manual_seed(8);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const Inputs in = with_seen(make_inputs(GetParam(), type));
    const LossResult ours = run_ours(in);
    const LossResult plain = run(in, [&](auto& h, auto& t) { return plain_loss(in, h, t); });
    expect_oracle_rule(ours, plain, reference(in));
  }
}

TEST_P(FullSoftmaxTest, DoubleMatchesTheOracle) {
  at::manual_seed(2);
  const Inputs in = make_inputs(GetParam(), at::kDouble);
  const LossResult ours = run_ours(in);
  expect_near(ours, reference(in), 1e-12);
}

TEST(FullSoftmax, GradientsMatchCentralDifferences) {
  at::manual_seed(3);
  const Inputs in = make_inputs({5, 6, 8, 4}, at::kDouble);
  expect_gradients(
      [&](auto& leaves) {
        return ops::full_softmax_loss(leaves[0], leaves[1], in.targets, in.catalogue, .5);
      },
      {in.hidden, in.table});
}

TEST(FullSoftmax, BlocksGiveTheLossesOfTheWhole) {
  at::manual_seed(4);
  const Inputs in = make_inputs({500, 9000, 9000, 8}, at::kDouble);  // several blocks
  const LossResult ours = run_ours(in);
  const LossResult plain = run(in, [&](auto& h, auto& t) { return plain_loss(in, h, t); });
  EXPECT_LE(max_abs(ours.losses - plain.losses), 1e-12);
  EXPECT_LE(max_abs(ours.dhidden - plain.dhidden), 1e-12);
  EXPECT_LE(max_abs(ours.dtable - plain.dtable), 1e-11);
  for (int repeat = 0; repeat < 10; ++repeat) {
    const LossResult again = run_ours(in);
    EXPECT_TRUE(at::equal(again.losses, ours.losses));
    EXPECT_TRUE(at::equal(again.dhidden, ours.dhidden));
    EXPECT_TRUE(at::equal(again.dtable, ours.dtable));
  }
}

TEST(FullSoftmax, IsTheSampledLossOverEveryOtherRow) {
  at::manual_seed(5);
  const Inputs in = make_inputs({12, 30, 30, 7}, at::kDouble);
  const Tensor all = in.catalogue.to(at::kInt).unsqueeze(0).expand({12, 30});
  EXPECT_LE(max_abs(run_ours(in).losses -
                    ops::sampled_softmax_loss(in.hidden, in.table, in.targets, all, kTemperature)),
            1e-12);
}

TEST(FullSoftmax, ExtremeLogitsStayFinite) {
  at::manual_seed(6);
  Inputs in = make_inputs({50, 40, 40, 6}, at::kFloat);
  in.hidden *= 1e4;
  const LossResult ours = run_ours(in);
  const auto expected = reference(in);
  EXPECT_TRUE(at::allclose(ours.losses.to(at::kDouble), expected.losses, 1e-5, 1e-1));
  EXPECT_TRUE(ours.dhidden.isfinite().all().item<bool>());
  EXPECT_TRUE(ours.dtable.isfinite().all().item<bool>());
}

TEST(FullSoftmax, StridedInputsGiveTheSame) {
  at::manual_seed(7);
  const Inputs in = make_inputs({13, 20, 30, 50}, at::kDouble);
  const Tensor expected =
      ops::full_softmax_loss(in.hidden, in.table, in.targets, in.catalogue, kTemperature);
  const Tensor strided = ops::full_softmax_loss(transposed(in.hidden), with_row_gaps(in.table),
                                                in.targets, in.catalogue, kTemperature);
  EXPECT_LE(max_abs(strided - expected), 1e-13);
}

TEST(FullSoftmax, IsRegisteredWithTorch) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("seqfuse::full_softmax_loss", "");
  at::manual_seed(8);
  const Inputs in = make_inputs({3, 4, 5, 6}, at::kFloat);
  const Inputs in_seen = with_seen(in);
  torch::jit::Stack stack{in.hidden,    in.table,     in.targets,     in.catalogue,
                          kTemperature, in_seen.seen, in_seen.offsets};
  op.callBoxed(&stack);
  EXPECT_TRUE(at::equal(stack.at(0).toTensor(), run_ours(in_seen).losses));
}

TEST(FullSoftmax, WrongArgumentsAreExplained) {
  const Tensor hidden = random({3, 4}), table = random({6, 4});
  const Tensor targets = torch::tensor({1, 2, 5}, at::kLong), all = at::arange(6, at::kLong);
  const auto loss = [&](const std::vector<int64_t>& catalogue) {
    ops::full_softmax_loss(hidden, table, targets, torch::tensor(catalogue, at::kLong), 1);
  };
  expect_error([&] { loss({1, 2, 3}); },
               "full_softmax_loss: targets[2] is 5, which catalogue does not list");
  expect_error([&] { loss({1, 2, 5, 2}); },
               "full_softmax_loss: catalogue[3] is 2, as catalogue[1] is; expected every id");
  expect_error([&] { loss({1, 6, 2, 5}); }, "full_softmax_loss: catalogue[1] is 6; expected an id");
  expect_error([&] { loss({}); }, "full_softmax_loss: catalogue is empty");
  expect_error(
      [&] { ops::full_softmax_loss(hidden, table, targets, all, 1, targets, at::tensor({0, 2})); },
      "full_softmax_loss: offsets ends with 2 but seen has 3 rows");
  expect_error([&] { ops::full_softmax_loss(hidden, table, targets, all, 1, targets); },
               "full_softmax_loss: seen is given without offsets");
  expect_error(
      [&] {
        ops::full_softmax_loss(hidden, table, targets, all, 1, targets.slice(0, 1),
                               at::tensor({0, 3}));
      },
      "full_softmax_loss: seen is [2]; expected [3] ([T], as targets)");
  expect_error(
      [&] { ops::full_softmax_loss(hidden, table, targets.slice(0, 1), targets, kTemperature); },
      "targets is [2]; expected [3]");
}

}  // namespace
}  // namespace seqfuse::full_softmax_test
