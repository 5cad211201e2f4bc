#include "tests/ops/masked_attention_problem.h"

namespace seqfuse::masked_attention_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

using Sizes = MaskedSizes;
using Problem = MaskedProblem;
using Kind = MaskedKind;

const std::vector<at::TensorOptions> kTypes{at::kFloat, at::kDouble};

class MaskedAttentionKinds : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, MaskedAttentionKinds, testing::ValuesIn(kMaskedKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(MaskedAttentionKinds, IsTheFormula) {
  for (const int64_t n : {1, 7, 63, 64, 65, 127, 1000}) {
    const Mask mask = GetParam().make(n, n);
    for (const int64_t d : {32, 64, 80, 128}) {
      // Two sequences, but of the long ones only where they have masks of their own.
      const Problem problem(
          mask, {.batch = n < 1000 ? 2 : mask.batch(), .queries = n, .keys = n, .head_dim = d});
      problem.check("length " + std::to_string(n) + " head_dim " + std::to_string(d), kTypes);
    }
  }
  const Mask longer = GetParam().make(1025, 1025);
  Problem(longer, {.batch = longer.batch(), .queries = 1025, .keys = 1025})
      .check("length 1025", {at::kFloat});
  // Of 4096 queries and keys the dense oracle takes long: masked_attention_cuda_test.cpp has them.
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{64, 4096}, {4096, 64}})
    Problem(GetParam().make(queries, keys), {.batch = 2, .queries = queries, .keys = keys})
        .check(std::to_string(queries) + " x " + std::to_string(keys), {at::kFloat});
}

TEST_P(MaskedAttentionKinds, LengthsMayDifferAndHeadsMayBeShared) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{5, 200}, {200, 70}, {1, 64}}) {
    for (const int64_t d : {4, 36, 72}) {
      const Problem problem(GetParam().make(queries, keys), {.batch = 2,
                                                             .heads = 6,
                                                             .key_heads = 2,
                                                             .queries = queries,
                                                             .keys = keys,
                                                             .head_dim = d});
      problem.check(
          std::to_string(queries) + " x " + std::to_string(keys) + " head_dim " + std::to_string(d),
          kTypes);
    }
  }
}

TEST(MaskedAttention, NoRowsOrNoKeys) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{0, 5}, {5, 0}, {0, 0}}) {
    const Problem problem(masks::full(queries, keys),
                          {.batch = 2, .queries = queries, .keys = keys});
    const auto results = problem.ours(at::kFloat);
    EXPECT_EQ(max_abs(results[0]), 0);
    EXPECT_TRUE(results[1].isinf().all().item<bool>());
    EXPECT_EQ(max_abs(results[2]), 0);
    EXPECT_EQ(max_abs(results[3]), 0);
  }
}

TEST(MaskedAttention, GradientsAreThoseOfDifferences) {
  const auto blocks =
      ops::block_mask_tensors(masks::BlockMask(masks::causal(5, 7) & masks::window(5, 7, 3, 0)));
  expect_gradients(
      [&](const std::vector<Tensor>& in) {
        const auto [out, lse] = ops::masked_attention(in[0], in[1], in[2], blocks, 0.7);
        return at::cat({out.flatten(), lse.flatten()});
      },
      {random({1, 2, 5, 3}), random({1, 1, 7, 3}), random({1, 1, 7, 3})});
}

TEST(MaskedAttention, QueriesWithoutKeysAreZeroAndDisturbNobody) {
  // Queries 10 to 19 see nothing.
  std::vector<int64_t> bounds;
  for (int64_t q = 0; q < 70; ++q) {
    bounds.push_back(0);
    bounds.push_back(q >= 10 && q < 20 ? 0 : 70);
  }
  const Sizes sizes{.queries = 70, .keys = 70};
  const Problem problem(masks::from_intervals(1, 70, 70, 1, bounds), sizes);
  problem.check("rows without keys", kTypes);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto actual = problem.ours(type);
    EXPECT_EQ(max_abs(actual[0].slice(2, 10, 20)), 0);
    EXPECT_EQ(actual[1].slice(2, 10, 20).max().item<double>(), -INFINITY);
    EXPECT_EQ(max_abs(actual[2].slice(2, 10, 20)), 0);
    // The others' output is, to the bit, that under a full mask, whose blocks have the same bounds.
    const Problem full(masks::full(70, 70), sizes);
    EXPECT_TRUE(at::equal(actual[0].slice(2, 20, 70), full.ours(type)[0].slice(2, 20, 70)));
  }
}

TEST(MaskedAttention, ARowsBitsDependOnNoOtherQuery) {
  for (const Kind& kind : kMaskedKinds) {
    Problem problem(kind.make(130, 130), {.batch = 2, .heads = 2, .queries = 130, .keys = 130});
    const auto before = problem.ours(at::kFloat);
    expect_same_for_any_threads([&] { return problem.ours(at::kFloat); });
    const auto row = [](const std::vector<Tensor>& results) {
      return std::vector{results[0][1][0][77], results[1][1][0][77], results[2][1][0][77]};
    };
    const Tensor q = problem.q[1][0][77].clone(), dout = problem.dout[1][0][77].clone();
    problem.q.normal_().mul_(100);
    problem.dout.normal_();
    problem.q[1][0][77].copy_(q);
    problem.dout[1][0][77].copy_(dout);
    const auto after = problem.ours(at::kFloat);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(at::equal(row(before)[i], row(after)[i])) << kind.name << " " << i;
    EXPECT_FALSE(at::equal(before[0], after[0])) << kind.name;
  }
}

TEST(MaskedAttention, UnseenElementsMayBeAnything) {
  const std::vector<int64_t> lengths{70, 130};
  const Sizes sizes{.batch = 2, .heads = 2, .queries = 130, .keys = 130};
  Problem problem(masks::lengths(130, 130, lengths, lengths), sizes);
  const auto expected = problem.ours(at::kFloat);
  for (Tensor* t : {&problem.q, &problem.k, &problem.v, &problem.dout})
    (*t)[0].slice(1, 70).fill_(std::nan(""));
  const auto actual = problem.ours(at::kFloat);
  constexpr const char* kNames[] = {"out", "lse", "dq", "dk", "dv"};
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(actual[i], expected[i])) << kNames[i];
}

TEST(MaskedAttention, PackedDocumentsAreDocumentsAlone) {
  const std::vector<int64_t> lengths{70, 1, 129};
  const Problem packed(masks::documents(200, 200, {lengths}) & masks::window(200, 200, 50, 50),
                       {.heads = 2, .queries = 200, .keys = 200});
  const auto together = packed.ours(at::kDouble);
  int64_t begin = 0;
  for (const int64_t n : lengths) {
    Problem alone(masks::window(n, n, 50, 50), {.heads = 2, .queries = n, .keys = n});
    alone.q = packed.q.slice(2, begin, begin + n);
    alone.k = packed.k.slice(2, begin, begin + n);
    alone.v = packed.v.slice(2, begin, begin + n);
    alone.dout = packed.dout.slice(2, begin, begin + n);
    alone.dlse = packed.dlse.slice(2, begin, begin + n);
    const auto results = alone.ours(at::kDouble);
    for (size_t i = 0; i < 5; ++i)
      EXPECT_LE(max_abs(results[i] - together[i].slice(2, begin, begin + n)), 1e-13)
          << n << " " << i;
    begin += n;
  }
}

TEST(MaskedAttention, TakesAnyStrides) {
  const Sizes sizes{.batch = 2, .heads = 3, .queries = 70, .keys = 90, .head_dim = 20};
  Problem problem(masks::causal(70, 90), sizes);
  const auto expected = problem.ours(at::kFloat);
  for (Tensor* t : {&problem.q, &problem.k, &problem.v, &problem.dout})
    *t = with_row_gaps(t->transpose(1, 2)).transpose(1, 2);
  const auto blocks = ops::block_mask_tensors(masks::BlockMask(problem.mask));
  const auto [out, lse] = ops::masked_attention(
      problem.q.to(at::kFloat).transpose(2, 3).contiguous().transpose(2, 3),
      with_row_gaps(problem.k.to(at::kFloat)), problem.v.to(at::kFloat), blocks, problem.scale);
  EXPECT_TRUE(at::equal(out, expected[0]));
  EXPECT_TRUE(at::equal(lse, expected[1]));
  EXPECT_TRUE(at::equal(problem.ours(at::kFloat)[4], expected[4]));
}

TEST(MaskedAttention, LargeScoresDoNotOverflow) {
  Problem problem(masks::causal(100, 100), {.queries = 100, .keys = 100});
  problem.q.mul_(1e4);
  problem.k.mul_(1e4);
  // Each query sees one key: the other scores are smaller by millions.
  const auto actual = problem.ours(at::kFloat), expected = problem.plain(at::kDouble);
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_LE(max_abs(actual[i].to(at::kDouble) - expected[i]), 1e-5 * (1 + max_abs(expected[i])))
        << i;
}

TEST(MaskedAttention, ScoresOfMinusInfinityHaveNoWeight) {
  for (const at::TensorOptions& type : kTypes)
    expect_low_scores_have_no_weight(LowScores::infinite_keys, type, 20, 1e-6, "infinite keys");
  expect_low_scores_have_no_weight(LowScores::overflowing_products, at::kFloat, 20, 1e-6,
                                   "overflowing products");
}

TEST(MaskedAttention, AQueryWhoseScoresAreAllMinusInfinityHasNoGradient) {
  Problem problem(masks::causal(70, 70), {.queries = 70, .keys = 70});
  problem.k.abs_();
  problem.q.slice(2, 3, 5).fill_(-std::numeric_limits<double>::infinity());
  for (const at::TensorOptions& type : kTypes) {
    const auto results = problem.ours(type);
    for (const size_t i : {size_t{0}, size_t{2}})
      EXPECT_EQ(max_abs(results[i].slice(2, 3, 5)), 0) << i;
    EXPECT_TRUE(results[1].slice(2, 3, 5).isneginf().all().item<bool>());
    for (const size_t i : {0, 2, 3, 4}) EXPECT_TRUE(results[i].isfinite().all().item<bool>()) << i;
  }
}

TEST(MaskedAttention, WhatMemoryHeldBeforeDoesNotMatter) {
  for (const at::TensorOptions& type : kTypes) expect_poison_changes_nothing(type, "on the CPU");
}

TEST(MaskedAttention, SequencesOfPaddingAloneSeeNothing) {
  const std::vector<int64_t> lengths{0, 130};
  Problem problem(masks::lengths(130, 130, lengths, lengths),
                  {.batch = 2, .heads = 2, .queries = 130, .keys = 130});
  for (Tensor* t : {&problem.q, &problem.k, &problem.v, &problem.dout}) (*t)[0].fill_(INFINITY);
  const auto results = problem.ours(at::kFloat);
  for (const size_t i : {0, 2, 3, 4}) EXPECT_EQ(max_abs(results[i][0]), 0) << i;
  EXPECT_TRUE(results[1][0].isneginf().all().item<bool>());
  for (const Tensor& result : results) EXPECT_TRUE(result[1].isfinite().all().item<bool>());
}

TEST(MaskedAttention, MatchesTheOracleForALongSequence) {
  constexpr int64_t kTokens = 96 * 1024;
  const Problem problem(masks::longformer(kTokens, kTokens, 30, 2),
                        {.queries = kTokens, .keys = kTokens, .head_dim = 8}, at::kFloat);
  const at::NoGradGuard no_grad;
  const auto blocks = ops::block_mask_tensors(masks::BlockMask(problem.mask));
  const auto [out, lse] =
      ops::masked_attention(problem.q, problem.k, problem.v, blocks, problem.scale);
  for (const int64_t q : {int64_t{0}, int64_t{1000}, kTokens - 1}) {
    const Tensor key = at::arange(kTokens);
    const Tensor allowed =
        ((key - q).abs() <= 30) | (key < 2) | at::scalar_tensor(q < 2, at::kBool);
    const auto [expected, expected_lse] = oracle::masked_attention(
        problem.q.slice(2, q, q + 1).to(at::kDouble), problem.k.to(at::kDouble),
        problem.v.to(at::kDouble), allowed.view({1, 1, 1, kTokens}), problem.scale);
    EXPECT_LE(max_abs(out.slice(2, q, q + 1) - expected), 1e-5) << q;
    EXPECT_LE(max_abs(lse.slice(2, q, q + 1) - expected_lse), 1e-5) << q;
  }
}

TEST(MaskedAttention, WrongArgumentsAreExplained) {
  const auto run = [](const std::function<void(Problem&)>& change, const Mask& mask) {
    Problem problem(mask, {.batch = 2, .heads = 4, .key_heads = 2, .queries = 8, .keys = 9});
    change(problem);
    ops::masked_attention(problem.q, problem.k, problem.v,
                          ops::block_mask_tensors(masks::BlockMask(mask)), 1);
  };
  const auto expect = [&](const std::function<void(Problem&)>& change, const std::string& text) {
    expect_error([&] { run(change, masks::full(8, 9)); }, text);
  };
  const auto nothing = [](Problem&) {};
  expect_error([&] { run(nothing, masks::full(64, 64)); },
               "masked_attention: the mask is for 64 queries and 64 keys, but q has 8 and k has 9; "
               "make a mask of these lengths");
  // Never cropped.
  const Problem shorter(masks::causal(1024, 1024), {.queries = 1024, .keys = 1024, .head_dim = 1});
  const auto longer = ops::block_mask_tensors(masks::BlockMask(masks::causal(8192, 8192)));
  expect_error([&] { ops::masked_attention(shorter.q, shorter.k, shorter.v, longer, 1); },
               "the mask is for 8192 queries and 8192 keys, but q has 1024 and k has 1024; make a "
               "mask of these lengths");
  expect_error(
      [&] {
        run(nothing, masks::lengths(8, 9, std::vector<int64_t>{1, 2, 3}, std::vector<int64_t>{9}));
      },
      "the mask has 3 sequences; expected 2 (the batch of q) or 1");
  expect([](Problem& p) { p.q = p.q[0]; }, "q is [4, 8, 32] (3-D); expected [B, H, queries, d]");
  expect([](Problem& p) { p.k = p.k.to(at::kFloat); }, "k is Float on cpu; expected Double on cpu");
  expect([](Problem& p) { p.q = p.q.to(at::kHalf); }, "q is Half; expected Float or Double");
  expect([](Problem& p) { p.v = p.v.slice(2, 0, 8); },
         "v is [2, 2, 8, 32]; expected [2, 2, 9, 32] (like k)");
  expect([](Problem& p) { p.q = p.q.slice(3, 0, 16); },
         "k is [2, 2, 9, 32] but q is [2, 4, 8, 16]; batch and head_dim must match");
  expect([](Problem& p) { p.q = p.q.slice(1, 0, 3); },
         "q has 3 heads and k has 2; expected a multiple of k's");
  auto blocks = ops::block_mask_tensors(masks::BlockMask(masks::full(8, 9)));
  blocks.lists[1] = blocks.lists[1].to(at::kLong);
  const Problem problem(masks::full(8, 9), {.queries = 8, .keys = 9});
  expect_error([&] { ops::masked_attention(problem.q, problem.k, problem.v, blocks, 1); },
               "column is Long; expected Int");
  blocks = ops::block_mask_tensors(masks::BlockMask(masks::full(8, 9)));
  const std::string elsewhere = "tensors on cpu and on meta, which have no values; all arguments";
  expect_error(
      [&] { ops::masked_attention(problem.q, problem.k.to(at::kMeta), problem.v, blocks, 1); },
      elsewhere);
  for (Tensor& list : blocks.lists) list = list.to(at::kMeta);
  expect_error([&] { ops::masked_attention(problem.q, problem.k, problem.v, blocks, 1); },
               elsewhere);
}

}  // namespace
}  // namespace seqfuse::masked_attention_test
