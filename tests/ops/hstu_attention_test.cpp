#include "ops/kernels/attention/hstu_attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "ops/torch/ops.h"
#include "tests/ops/hstu_attention_problem.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/hstu_attention.h"

namespace seqfuse::hstu_attention_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

// Plain PyTorch is the baseline of 16-bit kernels, and in float64 on a GPU it replaces the oracle.
TEST(HstuAttention, PlainPyTorchIsTheOracleInFloat64) {
  uint64_t seed = 1;
  for (Setting setting : settings()) {
    for (const bool bias : {false, true}) {
      setting.bias = bias;
      const Problem problem(kLengths, setting, seed++);
      const auto actual = plain(problem, at::kDouble), expected = reference_of(problem);
      for (size_t r = 0; r < expected.size(); ++r) {
        EXPECT_LE(max_abs(actual[r] - expected[r]), 1e-12 * (1 + max_abs(expected[r])))
            << describe(setting) << ": " << kResultNames[r];
      }
    }
  }
}

TEST(HstuAttention, MatchesTheOracleUnderEveryMask) {
  const std::vector<int64_t> lengths{0, 1, 7, 31, 64, 65, 127, 200, 0};
  const Setting settings[] = {
      {},
      {.head_dim = 50, .bias = true},
      {.heads = 1, .head_dim = 64, .contexts = 5},
      {.head_dim = 33, .contexts = 3, .targets = 40, .group_size = 3},
      {.head_dim = 16, .targets = 70, .window = 11},
      {.head_dim = 17,
       .contexts = 40,
       .targets = 9,
       .group_size = 2,
       .window = 40,
       .full_rows = 20},
      {.contexts = 4, .targets = 30, .window = 5, .bias = true, .fewer_queries = true},
      {.head_dim = 50, .bias = true, .fewer_queries = true},
      {.head_dim = 8, .causal = false},
      {.head_dim = 24, .causal = false, .bias = true},
      {.contexts = 6,
       .targets = 20,
       .group_size = 4,
       .window = 13,
       .full_rows = 2,
       .causal = false},
      {.heads = 3, .head_dim = 1, .contexts = 2, .targets = 5, .bias = true},
      {.heads = 1, .head_dim = 256, .contexts = 100, .targets = 100, .group_size = 11},
  };
  uint64_t seed = 1;
  for (const Setting& setting : settings) {
    expect_matches_oracle(Problem(lengths, setting, seed++), describe(setting));
  }
}

TEST(HstuAttention, MatchesTheOracleOnLongSequences) {
  const Setting settings[] = {
      {.heads = 1, .head_dim = 50, .bias = true},
      {.heads = 1,
       .head_dim = 32,
       .contexts = 99,
       .targets = 333,
       .group_size = 22,
       .window = 222,
       .full_rows = 7},
      {.heads = 1,
       .head_dim = 20,
       .contexts = 9,
       .targets = 99,
       .bias = true,
       .fewer_queries = true},
  };
  for (const Setting& setting : settings) {
    expect_matches_oracle(Problem({333, 1, 1111}, setting), describe(setting));
  }
}

TEST(HstuAttention, MatchesTheOracleOnRandomSmallCases) {
  Random random_number(7);
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(random_number.below(static_cast<uint64_t>(n)));
  };
  for (uint64_t repeat = 0; repeat < 60; ++repeat) {
    std::vector<int64_t> lengths;
    for (int64_t b = pick(5); b >= 0; --b) lengths.push_back(pick(90));
    const Setting setting{.heads = 1 + pick(3),
                          .head_dim = 1 + pick(40),
                          .contexts = pick(2) * pick(50),
                          .targets = pick(2) * pick(50),
                          .group_size = 1 + pick(6),
                          .window = pick(2) * pick(60),
                          .full_rows = pick(2) * pick(30),
                          .causal = pick(3) > 0,
                          .bias = pick(2) > 0,
                          .fewer_queries = pick(2) > 0};
    expect_matches_oracle(Problem(lengths, setting, repeat), describe(setting));
  }
}

TEST(HstuAttention, GradientsMatchCentralDifferences) {
  const Setting setting{.heads = 2,
                        .head_dim = 3,
                        .contexts = 2,
                        .targets = 4,
                        .group_size = 2,
                        .window = 5,
                        .full_rows = 2,
                        .bias = true,
                        .fewer_queries = true};
  const Problem problem({5, 0, 9, 1}, setting, 3);
  expect_gradients(
      [&](const std::vector<Tensor>& in) {
        HstuAttentionOptions options = problem.options;
        options.position_bias = in[3];
        options.time_bias = in[4];
        return ops::hstu_attention(in[0], in[1], in[2], problem.q_offsets, problem.k_offsets,
                                   options);
      },
      {problem.q, problem.k, problem.v, *problem.options.position_bias,
       *problem.options.time_bias});
}

// A layer whose every number comes from sin(0.37 k + 0.11); its attention output is known.
TEST(HstuAttention, GoldenVectors) {
  const int64_t n = 7, width = 6, heads = 2, head_dim = 3;
  int64_t taken = 0;
  const auto take = [&](at::IntArrayRef sizes) {
    const int64_t count = c10::multiply_integers(sizes);
    const Tensor index = at::arange(taken, taken + count, at::kDouble);
    taken += count;
    return at::sin(0.37 * index + 0.11).view(sizes);
  };
  const Tensor x = take({n, width}), w_uvqk = 0.5 * take({width, 4 * heads * head_dim});
  const Tensor b_uvqk = 0.1 * take({4 * heads * head_dim});
  take({heads * head_dim, width});  // the output projection
  const Tensor gamma = 1 + 0.1 * take({width}), beta = 0.1 * take({width});
  const Tensor normed = at::layer_norm(x, {width}, gamma, beta, 1e-5);
  const auto uvqk =
      at::silu(normed.matmul(w_uvqk) + b_uvqk).view({n, 4, heads, head_dim}).unbind(1);
  const Tensor out =
      ops::hstu_attention(uvqk[2], uvqk[3], uvqk[1], integers({0, n}), integers({0, n}),
                          {.alpha = 1 / std::sqrt(3.0),
                           .scaling_seqlen = 16,
                           .num_contexts = integers({2}),
                           .num_targets = integers({2})})
          .view({n, heads * head_dim});
  const Tensor first =
      at::tensor({-0.003845339, -0.001973782, -0.000187184, 0.000474408, 0.000790602, 0.000929404},
                 at::kDouble);
  const Tensor last =
      at::tensor({-0.007441366, -0.003894050, -0.000476646, 0.001103182, 0.001887759, 0.002236311},
                 at::kDouble);
  EXPECT_LE(max_abs(out[0] - first), 5.1e-10);
  EXPECT_LE(max_abs(out[6] - last), 5.1e-10);
}

// Sequences of one event: out = silu(time_bias[bucket(request - event)]), and time_bias[b] = b.
TEST(HstuAttention, TimeBucketsAreTheFloat64Definition) {
  std::vector<int64_t> differences{0, 1, -1, 2, -2, INT64_MAX, -INT64_MAX};
  for (int bucket = 1; bucket <= 144; ++bucket) {
    const auto edge = static_cast<int64_t>(std::exp(0.301 * bucket));
    for (int64_t x = edge - 2; x <= edge + 3; ++x) differences.insert(differences.end(), {x, -x});
  }
  Random random_number(5);
  for (int i = 0; i < 10'000; ++i) {
    differences.push_back(static_cast<int64_t>(random_number.below(INT64_MAX)) >>
                          random_number.below(63));
  }
  const auto count = static_cast<int64_t>(differences.size());
  for (const int64_t buckets : {1, 2, 129, 200}) {
    const Tensor one = at::ones({count, 1, 1}, at::kDouble), offsets = at::arange(count + 1);
    const Tensor out = ops::hstu_attention(at::zeros_like(one), one, one, offsets, offsets,
                                           {.time_bias = at::arange(buckets, at::kDouble),
                                            .timestamps = at::zeros({count}, at::kLong),
                                            .request_times = integers(differences)});
    for (int64_t i = 0; i < count; ++i) {
      const auto bucket = static_cast<double>(oracle::hstu_time_bucket(differences[i], buckets));
      ASSERT_NEAR(out[i].item<double>(), bucket / (1 + std::exp(-bucket)), 1e-12 * (1 + bucket))
          << differences[i] << " of " << buckets;
    }
  }
}

TEST(HstuAttention, WithoutRequestTimesTheLastEventIsTheRequest) {
  Problem problem({9, 40}, {.bias = true});
  std::vector<int64_t> last;
  for (int64_t b = 0; b < 2; ++b) {
    last.push_back((*problem.options.timestamps)[problem.k_offsets[b + 1].item<int64_t>() - 1]
                       .item<int64_t>());
  }
  problem.options.request_times = integers(last);
  const auto expected = ours(problem, at::kFloat);
  problem.options.request_times = {};
  const auto actual = ours(problem, at::kFloat);
  for (size_t r = 0; r < expected.size(); ++r) EXPECT_TRUE(at::equal(actual[r], expected[r]));
}

TEST(HstuAttention, StridedViewsGiveTheSameBits) {
  const int64_t heads = 3, d = 10;
  const Tensor offsets = offsets_of({33, 0, 70}), buffer = random({103, 4 * heads * d}, at::kFloat);
  const auto run = [&](auto&& view_of) {
    const Tensor leaf = buffer.detach().clone().requires_grad_();
    const auto parts = leaf.split(heads * d, 1);
    const auto heads_of = [&](const Tensor& part) { return view_of(part.view({103, heads, d})); };
    const Tensor out = ops::hstu_attention(heads_of(parts[2]), heads_of(parts[3]),
                                           heads_of(parts[1]), offsets, offsets, {});
    const Tensor dout = at::arange(out.numel(), out.options()).view(out.sizes()) * 1e-3;
    return std::pair{out, torch::autograd::grad({out}, {leaf}, {dout})[0]};
  };
  const auto expected = run([](const Tensor& x) { return x.contiguous(); });
  const auto views = run([](const Tensor& x) { return x; });
  const auto columns = run([](const Tensor& x) { return transposed(x); });
  for (const auto& actual : {views, columns}) {
    EXPECT_TRUE(at::equal(actual.first, expected.first));
    EXPECT_TRUE(at::equal(actual.second, expected.second));
  }
  const auto int32 = ops::hstu_attention(
      buffer.view({103, 4 * heads, d}), buffer.view({103, 4 * heads, d}),
      buffer.view({103, 4 * heads, d}), offsets.to(at::kInt), offsets.to(at::kInt), {});
  EXPECT_TRUE(at::equal(
      int32, ops::hstu_attention(buffer.view({103, 4 * heads, d}), buffer.view({103, 4 * heads, d}),
                                 buffer.view({103, 4 * heads, d}), offsets, offsets, {})));
}

TEST(HstuAttention, WritesItsOutputsAndNothingElse) {
  for (const int64_t d : {3, 16, 50}) {
    const Setting setting{.heads = 2,
                          .head_dim = d,
                          .contexts = 4,
                          .targets = 9,
                          .window = 6,
                          .bias = true,
                          .fewer_queries = true};
    const Problem problem({0, 1, 37, 70, 0, 131}, setting);
    const auto input = [&](const Tensor& t) {
      return ops::JaggedHeads{const_cast<void*>(t.const_data_ptr()), t.stride(0), t.stride(1)};
    };
    const int64_t queries = problem.q.size(0), keys = problem.k.size(0);
    const GuardedMatrix out(queries, 2 * d, problem.q.options()),
        dq(queries, 2 * d, problem.q.options()), dk(keys, 2 * d, problem.q.options()),
        dv(keys, 2 * d, problem.q.options());
    const auto output = [&](const GuardedMatrix& m) {
      return ops::JaggedHeads{m.data(), m.stride(), d};
    };
    const int64_t positions = problem.options.position_bias->numel();
    const GuardedMatrix d_position_bias(1, positions, problem.q.options()),
        d_time_bias(1, 50, problem.q.options()),
        workspace(1, 6 * 2 * (positions + 50), problem.q.options());
    ops::HstuAttentionParams params{
        .batch = 6,
        .heads = 2,
        .head_dim = d,
        .q = input(problem.q),
        .k = input(problem.k),
        .v = input(problem.v),
        .out = output(out),
        .q_offsets = problem.q_offsets.const_data_ptr<int64_t>(),
        .k_offsets = problem.k_offsets.const_data_ptr<int64_t>(),
        .mask = {.max_attn_len = setting.window},
        .num_contexts = problem.options.num_contexts->const_data_ptr<int64_t>(),
        .num_targets = problem.options.num_targets->const_data_ptr<int64_t>(),
        .position_bias = problem.options.position_bias->const_data_ptr(),
        .position_bias_size = positions,
        .time_bias = problem.options.time_bias->const_data_ptr(),
        .num_time_buckets = 50,
        .timestamps = problem.options.timestamps->const_data_ptr<int64_t>()};
    ops::hstu_attention_forward_cpu(params, DType::f64);
    ops::hstu_attention_backward_cpu({.forward = params,
                                      .dout = input(problem.dout),
                                      .dq = output(dq),
                                      .dk = output(dk),
                                      .dv = output(dv),
                                      .d_position_bias = d_position_bias.data(),
                                      .d_time_bias = d_time_bias.data(),
                                      .bias_workspace = workspace.data()},
                                     DType::f64);
    out.check("out");
    dq.check("dq");
    dk.check("dk");
    dv.check("dv");
    d_position_bias.check("d_position_bias");
    d_time_bias.check("d_time_bias");
    workspace.check("workspace");
  }
}

TEST(HstuAttention, SameBitsForAnyNumberOfThreadsAndInEveryRun) {
  const Setting setting{.heads = 2, .head_dim = 50, .contexts = 3, .targets = 10, .bias = true};
  const Problem problem({200, 1, 333, 64, 127, 31, 0, 65, 200, 7}, setting);
  expect_same_for_any_threads([&] { return ours(problem, at::kFloat); });
  const auto expected = ours(problem, at::kFloat);
  for (int run = 0; run < 10; ++run) {
    const auto actual = ours(problem, at::kFloat);
    for (size_t r = 0; r < expected.size(); ++r) {
      EXPECT_TRUE(at::equal(actual[r], expected[r])) << kResultNames[r] << ", run " << run;
    }
  }
}

TEST(HstuAttention, GradientsThatAreAskedForAlone) {
  const Problem problem({40, 0, 7}, {.targets = 3, .bias = true});
  HstuAttentionOptions options = problem.options;
  std::vector<Tensor> leaves{problem.q, problem.k, problem.v, *options.position_bias,
                             *options.time_bias};
  for (Tensor& leaf : leaves) leaf = leaf.detach().requires_grad_();
  options.position_bias = leaves[3];
  options.time_bias = leaves[4];
  const Tensor out = ops::hstu_attention(leaves[0], leaves[1], leaves[2], problem.q_offsets,
                                         problem.k_offsets, options);
  expect_same_alone(out, leaves, problem.dout, "attention");
}

TEST(HstuAttention, EmptyBatches) {
  for (const bool bias : {false, true}) {
    expect_nothing(ours(Problem({}, {.bias = bias}), at::kFloat));
    expect_nothing(ours(Problem({0, 0}, {.bias = bias}), at::kFloat));
  }
}

TEST(HstuAttention, WrongArgumentsAreExplained) {
  const Tensor offsets = offsets_of({300, 212}), q = random({512, 4, 128}, at::kFloat);
  const auto attend = [&](const Tensor& k, const Tensor& v, const Tensor& k_offsets,
                          const HstuAttentionOptions& options = {}) {
    return [=] { ops::hstu_attention(q, k, v, offsets, k_offsets, options); };
  };
  expect_error(attend(q, random({512, 4, 64}, at::kFloat), offsets),
               "hstu_attention: v is [512, 4, 64] but q is [512, 4, 128]; head_dim must match");
  expect_error(attend(random({512, 2, 128}, at::kFloat), q, offsets),
               "k is [512, 2, 128] but q is [512, 4, 128]; the number of heads must match");
  expect_error(attend(q.to(at::kDouble), q, offsets), "k is Double on cpu; expected Float on cpu");
  expect_error(attend(q.slice(0, 0, 500), q, offsets),
               "v is [512, 4, 128] but k is [500, 4, 128]; their rows must match");
  expect_error(attend(q, q, offsets_of({300, 200})),
               "k_offsets ends with 500 but k has 512 rows; they must be equal");
  expect_error(attend(q, q, offsets_of({212, 300})),
               "sequence 0 has 300 queries but 212 keys; queries are the last positions");
  expect_error(attend(q, q, offsets_of({512})), "k_offsets has 2 elements but q_offsets has 3");
  expect_error(attend(q, q, integers({0, 300, 212, 512})), "k_offsets decreases from 300 to 212");
  expect_error(attend(q, q, integers({1, 300, 512})), "k_offsets starts with 1; expected 0");
  expect_error(attend(q, q, offsets, {.scaling_seqlen = 0}),
               "scaling_seqlen is 0; expected 1 or more");
  expect_error(attend(q, q, offsets,
                      {.num_contexts = integers({200, 1}), .num_targets = integers({101, 1})}),
               "sequence 0 has 200 contexts and 101 targets in 300 keys");
  expect_error(attend(q, q, offsets, {.num_targets = integers({1})}),
               "num_targets is [1]; expected [2] (one for each sequence)");
  expect_error(attend(q, q, offsets, {.position_bias = random({597}, at::kFloat)}),
               "position_bias has 597 elements, for sequences of 299; the longest here has 300: "
               "expected at least 599");
  expect_error(attend(q, q, offsets, {.max_seqlen = 299}),
               "max_seqlen is 299 but sequence 0 has 300 keys; expected at least the longest");
  expect_error(attend(q, q, offsets, {.max_seqlen = -3}), "max_seqlen is -3; expected 0 or more");
  expect_error(attend(q, q, offsets, {.time_bias = random({129}, at::kFloat)}),
               "time_bias was given without timestamps");
  expect_error([&] { ops::hstu_attention(q.to(at::kHalf), q, q, offsets, offsets, {}); },
               "q is Half; expected Float or Double on the CPU");
}

}  // namespace
}  // namespace seqfuse::hstu_attention_test
