// HSTU attention's kernels on random cases: they keep the oracle rule, and a sequence's result is
// bit-identical at any place in the batch and next to any other sequences.
#include <fmt/ranges.h>

#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/ops/cuda_test.h"
#include "tests/ops/hstu_attention_on_gpu.h"

namespace seqfuse::hstu_attention_random_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct RandomCase {
  explicit RandomCase(uint64_t seed) : seed(seed) {
    Random random_number(seed);
    const auto pick = [&](int64_t n) {
      return static_cast<int64_t>(random_number.below(static_cast<uint64_t>(n)));
    };
    lengths.push_back(1 + pick(600));
    for (int64_t b = pick(12); b > 0; --b) lengths.push_back(pick(pick(4) > 0 ? 130 : 600));
    order.resize(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t b = order.size() - 1; b > 0; --b) {
      std::swap(order[b], order[static_cast<size_t>(pick(static_cast<int64_t>(b) + 1))]);
    }
    chosen = static_cast<size_t>(pick(static_cast<int64_t>(lengths.size())));
    setting = {.heads = 1 + pick(4),
               .head_dim = pick(2) > 0 ? 8 * (1 + pick(32)) : 1 + pick(256),
               .contexts = pick(2) * pick(150),
               .targets = pick(2) * pick(150),
               .group_size = 1 + pick(12),
               .window = pick(2) * pick(200),
               .full_rows = pick(2) * pick(60),
               .causal = pick(3) > 0,
               .bias = pick(2) > 0,
               .fewer_queries = pick(3) == 0,
               .drawn = pick(4) > 0};
    // Heads all aligned to 16 bytes, or anywhere.
    const bool aligned = pick(2) > 0;
    before = aligned ? 8 * pick(2) : pick(9);
    after = aligned ? 8 * pick(2) : pick(9);
  }

  uint64_t seed;
  std::vector<int64_t> lengths, order;  // order: a permutation of the sequences
  size_t chosen = 0;                    // a sequence
  Setting setting;
  int64_t before = 0, after = 0;  // NaN elements before and after each head
};

std::string describe(const RandomCase& c) {
  return fmt::format(
      "seed {}, {}, lengths {}, order {}, sequence {}, {} before and {} after a head", c.seed,
      test::describe(c.setting), c.lengths, c.order, c.chosen, c.before, c.after);
}

// With q, k and v as views with NaN between heads.
std::vector<Tensor> between_nans(const RandomCase& c, const Problem& problem, at::ScalarType type) {
  const auto view = [&](const Tensor& t) {
    return at::constant_pad_nd(t, {c.before, c.after}, kNan)
        .slice(2, c.before, c.before + t.size(2));
  };
  return results(
      problem, type,
      [&](const Tensor& q, const Tensor& k, const Tensor& v, const HstuAttentionOptions& options) {
        return ops::hstu_attention(view(q), view(k), view(v), problem.q_offsets, problem.k_offsets,
                                   options);
      });
}

// The rows of the sequences, permuted.
Tensor rows_of(const std::vector<int64_t>& order, const Tensor& offsets) {
  const auto begins = values_of(offsets.cpu());
  std::vector<Tensor> rows;
  for (const auto b : order)
    rows.push_back(at::arange(begins[b], begins[b + 1], offsets.options()));
  return at::cat(rows);
}

Problem permuted(const Problem& problem, const std::vector<int64_t>& order) {
  Problem result = problem;
  for (size_t b = 0; b < order.size(); ++b) result.masks[b] = problem.masks[order[b]];
  const Tensor sequences = at::tensor(order, problem.k_offsets.options());
  const auto select = [](Tensor& t, const Tensor& rows) { t = t.index_select(0, rows); };
  for (Tensor* t : {&result.q, &result.dout}) select(*t, rows_of(order, problem.q_offsets));
  for (Tensor* t : {&result.k, &result.v}) select(*t, rows_of(order, problem.k_offsets));
  HstuAttentionOptions& options = result.options;
  for (ops::OptionalTensor* t : {&options.num_contexts, &options.num_targets}) {
    select(**t, sequences);
  }
  if (options.timestamps) {
    select(*options.timestamps, rows_of(order, problem.k_offsets));
    select(*options.request_times, sequences);
  }
  for (Tensor* offsets : {&result.q_offsets, &result.k_offsets}) {
    *offsets = ops::lengths_to_offsets(offsets->diff().index_select(0, sequences));
  }
  return result;
}

Tensor rows_of_sequence(const Tensor& rows, const Tensor& offsets, size_t b) {
  const auto begins = values_of(offsets.cpu());
  return rows.slice(0, begins[b], begins[b + 1]);
}

// Sets all sequences but one to NaN.
Problem with_nan_beside(const Problem& problem, size_t b) {
  Problem result = problem;
  const auto keep = [&](Tensor& t, const Tensor& offsets) {
    Tensor alone = at::full_like(t, kNan);
    rows_of_sequence(alone, offsets, b).copy_(rows_of_sequence(t, offsets, b));
    t = alone;
  };
  for (Tensor* t : {&result.q, &result.dout}) keep(*t, problem.q_offsets);
  for (Tensor* t : {&result.k, &result.v}) keep(*t, problem.k_offsets);
  return result;
}

constexpr size_t kJaggedResults = 4;  // out, dq, dk, dv; bias gradients are sums over all sequences

const Tensor& offsets_of_result(const Problem& problem, size_t r) {
  return r < 2 ? problem.q_offsets : problem.k_offsets;
}

class HstuAttentionRandomCudaTest : public CudaTestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, HstuAttentionRandomCudaTest,
                         testing::Values(at::kHalf, at::kBFloat16));

TEST_P(HstuAttentionRandomCudaTest, KeepsTheOracleRuleAndSequencesApart) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const RandomCase c(seed);
    const std::string what = describe(c);
    const Problem problem = rounded(copied(Problem(c.lengths, c.setting, seed)), GetParam());
    const auto framework = plain(problem, GetParam()), expected = plain(problem, at::kDouble);
    const Deterministic mode;
    const auto actual = between_nans(c, problem, GetParam());
    expect_oracle_rule_by_sequence(problem, actual, framework, expected, what);

    const auto moved = between_nans(c, permuted(problem, c.order), GetParam()),
               alone = between_nans(c, with_nan_beside(problem, c.chosen), GetParam());
    for (size_t r = 0; r < kJaggedResults; ++r) {
      const Tensor& offsets = offsets_of_result(problem, r);
      EXPECT_TRUE(at::equal(moved[r], actual[r].index_select(0, rows_of(c.order, offsets))))
          << what << ": " << kResultNames[r] << " of sequences in another order";
      EXPECT_TRUE(at::equal(rows_of_sequence(alone[r], offsets, c.chosen),
                            rows_of_sequence(actual[r], offsets, c.chosen)))
          << what << ": " << kResultNames[r] << " with NaN in the other sequences";
    }
  }
}

}  // namespace
}  // namespace seqfuse::hstu_attention_random_cuda_test
