#include "tests/oracles/decode_attention.h"
#include "ops/torch/decode/decode.h"
#include "tests/ops/op_test.h"

namespace seqfuse::decode_attention_test {
namespace {

using at::Tensor;
using ops::DecodeAttentionRow;
using namespace seqfuse::test;

// Rows at different places of a cache, the queries of a model's packed q, k, v.
struct Problem {
  int64_t heads, slots, dim, half;
  std::vector<DecodeAttentionRow> rows;
  Tensor qkv, keys, values;  // qkv [rows, heads, 3 dim]
  ops::DecodeAngles angles;

  Problem(int64_t heads_, int64_t slots_, int64_t dim_, int64_t half_, at::ScalarType type,
          std::vector<DecodeAttentionRow> rows_)
      : heads(heads_), slots(slots_), dim(dim_), half(half_), rows(std::move(rows_)) {
    at::manual_seed(7);
    const auto count = static_cast<int64_t>(rows.size());
    qkv = random({count, heads, 3 * dim}, type);
    keys = random({count, heads, slots, dim}, type);
    values = random({count, heads, slots, dim}, type);
    angles.half = half;
    for (int64_t i = 0; i < count * half; ++i) {
      const double angle = 0.7 * static_cast<double>(i), start = 0.3 * static_cast<double>(i);
      angles.cos.push_back(static_cast<float>(std::cos(angle)));
      angles.sin.push_back(static_cast<float>(std::sin(angle)));
      angles.start_cos.push_back(static_cast<float>(std::cos(start)));
      angles.start_sin.push_back(static_cast<float>(std::sin(start)));
    }
  }

  Tensor part(int64_t i) const { return qkv.slice(-1, i * dim, (i + 1) * dim); }

  // On copies of the cache, which come back too.
  std::vector<Tensor> run() const {
    const Tensor k = keys.clone(), v = values.clone();
    return {ops::decode_attention(part(0), part(1), part(2), k, v, rows, angles), k, v};
  }

  std::vector<Tensor> expected() const {
    const auto f64 = [](const Tensor& t) { return t.to(at::kDouble); };
    const Tensor k = f64(keys).clone(), v = f64(values).clone();
    return {oracle::decode_attention(f64(part(0)), f64(part(1)), f64(part(2)), k, v, rows, angles),
            k, v};
  }

  Problem only(int64_t row) const {
    Problem one = *this;
    one.rows = {rows[row]};
    one.qkv = qkv.slice(0, row, row + 1);
    one.keys = keys.slice(0, row, row + 1).contiguous();
    one.values = values.slice(0, row, row + 1).contiguous();
    const auto cut = [&](std::vector<float>& all) {
      all = {all.begin() + row * half, all.begin() + (row + 1) * half};
    };
    for (auto* all :
         {&one.angles.cos, &one.angles.sin, &one.angles.start_cos, &one.angles.start_sin})
      cut(*all);
    return one;
  }
};

// A first token; a full prefix; first tokens and a ring that goes round its end; one that stays.
std::vector<DecodeAttentionRow> some_rows(int64_t slots) {
  return {{.slot = 0, .newest = {{0, 1}, {}}},
          {.slot = slots - 1, .newest = {{0, slots}, {}}},
          {.slot = 2, .first = 2, .newest = {{slots / 2 + 1, slots}, {2, slots / 2}}},
          {.active = false},
          {.slot = 1, .first = 2}};
}

struct Case {
  int64_t heads, slots, dim, half;
};

class DecodeAttentionTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, DecodeAttentionTest,
                         testing::Values(Case{1, 8, 2, 1}, Case{2, 9, 7, 2}, Case{3, 33, 20, 4},
                                         Case{2, 70, 64, 8}, Case{2, 70, 80, 10},
                                         Case{1, 40, 128, 64}, Case{1, 21, 150, 0}));

TEST_P(DecodeAttentionTest, IsTheFormula) {
  const auto [heads, slots, dim, half] = GetParam();
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const Problem problem(heads, slots, dim, half, type, some_rows(slots));
    const auto actual = problem.run(), expected = problem.expected();
    // Keys and values are rounded once when stored; attention reads the stored ones.
    const double tolerance = type == at::kFloat ? 2e-6 : type == at::kHalf ? 2e-3 : 1.6e-2;
    EXPECT_EQ(actual[0].scalar_type(), type);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_LE(max_abs(actual[i].to(at::kDouble) - expected[i]),
                tolerance * (1 + max_abs(expected[i])))
          << i << ", " << type;
    }
    EXPECT_EQ(max_abs(actual[0][3]), 0);  // the row that stays: nothing is computed or written
    EXPECT_TRUE(at::equal(actual[1][3], problem.keys[3]));
    EXPECT_TRUE(at::equal(actual[2][3], problem.values[3]));
  }
}

TEST_P(DecodeAttentionTest, ARowsBitsDependOnItAlone) {
  const auto [heads, slots, dim, half] = GetParam();
  const Problem problem(heads, slots, dim, half, at::kHalf, some_rows(slots));
  expect_same_for_any_threads([&] { return problem.run(); });
  const auto together = problem.run();
  for (int64_t row = 0; row < static_cast<int64_t>(problem.rows.size()); ++row) {
    const auto alone = problem.only(row).run();
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(alone[i][0], together[i][row])) << row;
  }
}

// Unseen slots may hold anything.
TEST(DecodeAttention, HiddenSlotsAreNotRead) {
  Problem problem(2, 12, 10, 2, at::kFloat, {{.slot = 4, .first = 1, .newest = {{3, 6}, {}}}});
  const Tensor expected = problem.run()[0];
  for (const int64_t hidden : {1, 2, 6, 11}) {
    problem.keys.select(2, hidden).fill_(std::nan(""));
    problem.values.select(2, hidden).fill_(std::nan(""));
  }
  problem.keys.select(2, 4).fill_(std::nan(""));  // overwritten by the token itself
  EXPECT_TRUE(at::equal(problem.run()[0], expected));
}

TEST(DecodeAttention, LargeScoresDoNotOverflow) {
  Problem problem(1, 6, 8, 0, at::kFloat, {{.slot = 5, .newest = {{0, 6}, {}}}});
  problem.qkv.mul_(1e4);
  problem.keys.mul_(1e4);
  const auto actual = problem.run();
  EXPECT_TRUE(actual[0].isfinite().all().item<bool>());
  // One key has all the weight.
  const double nearest = (actual[2][0][0] - actual[0][0][0]).abs().amax(1).min().item<double>();
  EXPECT_EQ(nearest, 0);
}

TEST(DecodeAttention, WrongArgumentsAreExplained) {
  const auto run = [](const std::function<void(Problem&)>& change) {
    Problem problem(2, 6, 8, 2, at::kFloat, {{.slot = 5, .newest = {{0, 6}, {}}}});
    change(problem);
    problem.run();
  };
  expect_error([&] { run([](Problem& p) { p.rows[0].slot = 6; }); },
               "decode_attention: a row sees 6 slots and writes slot 6; the cache has 6");
  expect_error([&] { run([](Problem& p) { p.rows[0].newest[0].end = 0; }); }, "a row sees 0 slots");
  expect_error([&] { run([](Problem& p) { p.rows.push_back({}); }); },
               "decode_attention: 2 descriptions of rows; expected 1");
  expect_error([&] { run([](Problem& p) { p.angles.cos.pop_back(); }); },
               "decode_attention: 1 angles of 2 pairs; expected 2 for heads of 8");
  expect_error([&] { run([](Problem& p) { p.keys = p.keys.to(at::kHalf); }); },
               "decode_attention: keys is Half on cpu; expected Float on cpu, like q");
  expect_error([&] { run([](Problem& p) { p.values = p.values.slice(2, 0, 5); }); },
               "decode_attention: values is [1, 2, 5, 8]; expected [1, 2, 6, 8] (like keys)");
}

}  // namespace
}  // namespace seqfuse::decode_attention_test
