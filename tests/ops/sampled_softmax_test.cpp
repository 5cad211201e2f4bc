#include "ops/kernels/softmax/sampled_softmax.h"

#include <fstream>
#include <string>

#include "ops/torch/ops.h"
#include "tests/ops/softmax_loss_test.h"

namespace seqfuse::sampled_softmax_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;
using namespace seqfuse::test::sampled;

class SampledSoftmaxTest : public testing::TestWithParam<Case> {};

// No negatives, only collisions, counts and widths around the vector widths, many duplicates.
INSTANTIATE_TEST_SUITE_P(Shapes, SampledSoftmaxTest,
                         testing::Values(Case{0, 5, 3, 4}, Case{6, 0, 3, 4}, Case{5, 3, 1, 4},
                                         Case{1, 1, 2, 1}, Case{9, 15, 20, 16}, Case{33, 16, 5, 17},
                                         Case{40, 17, 300, 50}, Case{70, 128, 3953, 50},
                                         Case{21, 64, 1000, 256}, Case{10, 33, 100, 129}));

TEST_P(SampledSoftmaxTest, LossAndGradientsKeepTheOracleRule) {
  at::manual_seed(1);
  const Inputs in = make_inputs(GetParam(), at::kFloat);
  const LossResult ours = run_ours(in);
  const LossResult plain = run(in, [&](auto& h, auto& t) { return plain_loss(in, h, t); });
  const auto expected = reference(in);
  expect_oracle_rule(ours, plain, expected);
}

TEST_P(SampledSoftmaxTest, DoubleMatchesTheOracle) {
  at::manual_seed(2);
  const Inputs in = make_inputs(GetParam(), at::kDouble);
  const LossResult ours = run_ours(in);
  expect_near(ours, reference(in), 1e-12);
}

TEST_P(SampledSoftmaxTest, SparseGradientIsTheDenseOne) {
  at::manual_seed(3);
  const Inputs in = make_inputs(GetParam(), at::kFloat);
  const Tensor sparse = run_ours(in, true).dtable;
  ASSERT_TRUE(sparse.is_sparse());
  EXPECT_TRUE(at::equal(sparse.to_dense(), run_ours(in).dtable));
  const Tensor ids = at::cat({in.targets, in.negatives.to(at::kLong).view(-1)});
  EXPECT_TRUE(at::equal(sparse._indices()[0], std::get<0>(at::_unique(ids))));
}

TEST_P(SampledSoftmaxTest, WritesItsOutputsAndNothingElse) {
  const Case c = GetParam();
  at::manual_seed(4);
  const Inputs in = make_inputs(c, at::kDouble);
  // Outputs are contiguous: each is one row of a guarded matrix.
  const auto options = in.hidden.options();
  const GuardedMatrix losses(1, c.positions, options);
  const GuardedMatrix coefficients(1, c.positions * (1 + c.negatives), options);
  const GuardedMatrix dhidden(1, c.positions * c.dim, options);
  ops::sampled_softmax_forward_cpu({.hidden = in.hidden.const_data_ptr(),
                                    .table = in.table.const_data_ptr(),
                                    .targets = in.targets.const_data_ptr<int64_t>(),
                                    .negatives = in.negatives.const_data_ptr<int32_t>(),
                                    .losses = losses.data(),
                                    .coefficients = coefficients.data(),
                                    .dhidden = dhidden.data(),
                                    .positions = c.positions,
                                    .num_negatives = c.negatives,
                                    .dim = c.dim,
                                    .num_rows = c.rows,
                                    .temperature = kTemperature},
                                   DType::f64);
  losses.check("losses");
  coefficients.check("coefficients");
  dhidden.check("dhidden");
}

TEST(SampledSoftmax, GradientsMatchCentralDifferences) {
  at::manual_seed(5);
  for (const Case& c : {Case{1, 4, 6, 3}, Case{5, 9, 7, 4}}) {
    const Inputs in = make_inputs(c, at::kDouble);
    expect_gradients(
        [&](auto& leaves) {
          return ops::sampled_softmax_loss(leaves[0], leaves[1], in.targets, in.negatives, .5);
        },
        {in.hidden, in.table});
  }
}

TEST(SampledSoftmax, CollisionsAreLeftOut) {
  at::manual_seed(6);
  Inputs in = make_inputs({4, 6, 10, 8}, at::kDouble);
  in.targets.fill_(3);
  in.negatives.fill_(5);
  in.negatives.slice(1, 2).fill_(3);  // four of six collide
  const LossResult ours = run_ours(in);
  in.negatives = in.negatives.slice(1, 0, 2).contiguous();
  const LossResult without = run_ours(in);
  EXPECT_TRUE(at::equal(ours.losses, without.losses));
  EXPECT_LE(max_abs(ours.dhidden - without.dhidden), 1e-14);
  EXPECT_LE(max_abs(ours.dtable - without.dtable), 1e-14);
}

TEST(SampledSoftmax, NothingButCollisionsCostsNothing) {
  at::manual_seed(7);
  Inputs in = make_inputs({3, 20, 4, 5}, at::kFloat);
  in.negatives.copy_(in.targets.unsqueeze(1).expand({3, 20}));
  const LossResult ours = run_ours(in);
  EXPECT_EQ(max_abs(ours.losses), 0);
  EXPECT_EQ(max_abs(ours.dhidden), 0);
  EXPECT_EQ(max_abs(ours.dtable), 0);
}

TEST(SampledSoftmax, ExtremeLogitsStayFinite) {
  at::manual_seed(8);
  Inputs in = make_inputs({50, 30, 40, 6}, at::kFloat);
  in.hidden *= 1e4;  // logits up to 2e5
  const LossResult ours = run_ours(in);
  const auto expected = reference(in);
  EXPECT_TRUE(at::allclose(ours.losses.to(at::kDouble), expected.losses, 1e-5, 1e-1));
  EXPECT_TRUE(ours.dhidden.isfinite().all().item<bool>());
  EXPECT_TRUE(ours.dtable.isfinite().all().item<bool>());
}

TEST(SampledSoftmax, NotANumberIsNotHidden) {
  at::manual_seed(9);
  Inputs in = make_inputs({2, 20, 40, 6}, at::kFloat);
  in.targets.fill_(0);
  in.negatives.clamp_min_(1);
  in.negatives[1].fill_(2);
  in.negatives[1][17] = 1;
  in.negatives[0].fill_(2);
  in.table[1].fill_(std::numeric_limits<double>::quiet_NaN());
  const Tensor losses = run_ours(in).losses;
  EXPECT_FALSE(losses[0].isnan().item<bool>());
  EXPECT_TRUE(losses[1].isnan().item<bool>());
}

TEST(SampledSoftmax, StridedInputsGiveTheSameBits) {
  at::manual_seed(10);
  expect_strides_do_not_matter(make_inputs({13, 7, 30, 50}, at::kFloat));
}

TEST(SampledSoftmax, OneGradientAloneIsTheSame) {
  at::manual_seed(11);
  expect_one_gradient_alone_is_the_same(make_inputs({9, 5, 12, 7}, at::kFloat));
}

TEST(SampledSoftmax, SameBitsForAnyNumberOfThreadsAndFromRunToRun) {
  at::manual_seed(12);
  const Inputs in = make_inputs({1500, 64, 3953, 50}, at::kFloat);
  const auto compute = [&] {
    const LossResult r = run_ours(in);
    return std::vector<Tensor>{r.losses, r.dhidden, r.dtable};
  };
  expect_same_for_any_threads(compute);
  const auto first = compute();
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto again = compute();
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(again[i], first[i]));
  }
}

// A value in /proc/self/status, in bytes; 0 if missing.
int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

TEST(SampledSoftmax, MemoryDoesNotGrowWithPairsTimesDim) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer holds freed memory back";
  at::manual_seed(13);
  constexpr Case kCase{20000, 128, 3953, 50};
  const Inputs in = make_inputs(kCase, at::kFloat);
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;  // the peak is measured from here
  if (!clear) GTEST_SKIP() << "this system does not let a process reset its peak memory";
  const int64_t before = status_bytes("VmRSS");
  run_ours(in);
  const int64_t grown = status_bytes("VmHWM") - before;
  // [T, K, D] would be 512 MB. Coefficients and terms at 16 bytes per pair are 41 MB.
  EXPECT_LT(grown, int64_t{200} << 20);
}

TEST(SampledSoftmax, IsRegisteredWithTorch) {
  const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("seqfuse::sampled_softmax_loss", "");
  at::manual_seed(14);
  const Inputs in = make_inputs({3, 4, 5, 6}, at::kFloat);
  torch::jit::Stack stack{in.hidden, in.table, in.targets, in.negatives, kTemperature, false};
  op.callBoxed(&stack);
  EXPECT_TRUE(at::equal(
      stack.at(0).toTensor(),
      ops::sampled_softmax_loss(in.hidden, in.table, in.targets, in.negatives, kTemperature)));
}

TEST(SampledSoftmax, WrongArgumentsAreExplained) {
  at::manual_seed(15);
  const Inputs in = make_inputs({3, 4, 5, 6}, at::kFloat);
  const auto loss = [&](const Tensor& hidden, const Tensor& targets, const Tensor& negatives,
                        double temperature = 1) {
    ops::sampled_softmax_loss(hidden, in.table, targets, negatives, temperature);
  };
  Tensor bad = in.targets.clone();
  bad[2] = 5;
  expect_error([&] { loss(in.hidden, bad, in.negatives); },
               "sampled_softmax_loss: targets[2] is 5; expected an id of at least 0 and below 5");
  bad = in.negatives.clone();
  bad[1][3] = -7;
  expect_error([&] { loss(in.hidden, in.targets, bad); },
               "sampled_softmax_loss: negatives[1, 3] is -7");
  expect_error([&] { loss(in.hidden, in.targets, in.negatives.to(at::kLong)); },
               "negatives is Long; expected Int (int32)");
  expect_error([&] { loss(in.hidden, in.targets.slice(0, 1), in.negatives); },
               "targets is [2]; expected [3] (one for each row of hidden)");
  expect_error([&] { loss(in.hidden, in.targets, in.negatives.slice(0, 1)); },
               "negatives is [2, 4]; expected [3, 4] (one row for each row of hidden)");
  expect_error([&] { loss(in.hidden.slice(1, 1), in.targets, in.negatives); },
               "hidden is [3, 5]; expected [3, 6] (the columns of table)");
  expect_error([&] { loss(in.hidden.to(at::kDouble), in.targets, in.negatives); },
               "hidden is Double");
  expect_error([&] { loss(in.hidden, in.targets, in.negatives, 0); },
               "temperature is 0; expected a positive number");
}

}  // namespace
}  // namespace seqfuse::sampled_softmax_test
