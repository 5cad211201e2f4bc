// The memory that HSTU attention's kernels access: parts of one matrix, as in a layer, surrounded
// by NaN, and offsets of more than 31 bits.
#include <limits>
#include <utility>
#include <vector>

#include "ops/torch/attention/hstu_attention_inputs.h"
#include "tests/ops/cuda_test.h"
#include "tests/ops/hstu_attention_on_gpu.h"

namespace seqfuse::hstu_attention_memory_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

// Rows [u | v | q | k] of a matrix as [T, H, d] each. In arguments, u is dout; in results, u is
// out.
struct Parts {
  Parts(const Tensor& matrix, int64_t heads) {
    const auto parts =
        matrix.view({matrix.size(0), 4, heads, matrix.size(1) / 4 / heads}).unbind(1);
    u = parts[0];
    v = parts[1];
    q = parts[2];
    k = parts[3];
  }
  Tensor u, v, q, k;
};

// Writes out, dq, dk and dv to `results`; problem provides offsets and options, without biases.
void attend(const Problem& problem, const Parts& arguments, const Parts& results) {
  const auto in = ops::checked_attention_inputs(
      arguments.q, arguments.k, arguments.v, problem.q_offsets, problem.k_offsets, problem.options);
  ops::attention_into(in, results.u);
  ops::attention_gradients_into(in, arguments.u, results.q, results.k, results.v, {false, false});
}

class HstuAttentionMemoryCudaTest : public CudaTestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, HstuAttentionMemoryCudaTest,
                         testing::Values(at::kHalf, at::kBFloat16));

TEST_P(HstuAttentionMemoryCudaTest, PartsOfOneMatrixWithNanAround) {
  const Deterministic mode;
  // Gaps before and after each row, for 16-, 4- and 2-byte accesses.
  const std::pair<int64_t, int64_t> gaps[] = {{8, 8}, {2, 4}, {2, 3}};
  for (const int64_t head_dim : {32, 50, 64, 128, 256}) {
    const Setting setting{
        .head_dim = head_dim, .contexts = 40, .targets = 20, .group_size = 3, .window = 30};
    const Problem problem = copied(Problem(kLengths, setting));
    const auto expected = ours(problem, GetParam());
    const int64_t rows = problem.q.size(0), columns = 4 * setting.heads * head_dim;
    for (const auto& [before, after] : gaps) {
      const auto type = problem.q.options().dtype(GetParam());
      const GuardedMatrix arguments(rows, columns, type, before, after),
          results(rows, columns, type, before, after);
      const Parts from(arguments.matrix(), setting.heads), to(results.matrix(), setting.heads);
      from.u.copy_(problem.dout);
      from.v.copy_(problem.v);
      from.q.copy_(problem.q);
      from.k.copy_(problem.k);
      attend(problem, from, to);
      const std::string what =
          fmt::format("head_dim {}, {} before, {} after a row", head_dim, before, after);
      results.check(what);
      expect_equal({to.u, to.q, to.k, to.v}, expected, what);
    }
  }
}

// The elements of arguments, results and dq's sums need more than 31 bits to index. All values are
// 0, and so are the results, except in two sequences at either end.
using HstuAttentionHugeCudaTest = CudaTest;

TEST_F(HstuAttentionHugeCudaTest, MoreElementsThan31BitsCount) {
  constexpr int64_t kNeeded = int64_t{40} << 30;
  if (const int64_t free = free_gpu_memory(); free < kNeeded) {
    GTEST_SKIP() << "needs 40 GiB of GPU memory; free are " << (free >> 30);
  }
  constexpr at::ScalarType kType = at::kBFloat16;
  constexpr int64_t kHeads = 4, kHeadDim = 136, kSumColumns = 256;  // in kernels for head_dim 136
  constexpr int64_t kZeroSequences = 2048, kZeroLength = 1024;
  constexpr int64_t kFirst = 1000 + 777, kLast = 1024 + 333;
  constexpr int64_t kEnd = kFirst + kZeroSequences * kZeroLength, kRows = kEnd + kLast;
  constexpr int64_t kLimit = int64_t{1} << 31;
  static_assert(kRows * 4 * kHeads * kHeadDim > kLimit && kRows * kHeads * kSumColumns > kLimit);

  const Problem ends = rounded(
      copied(Problem({1000, 777, 1024, 333}, {.heads = kHeads, .head_dim = kHeadDim})), kType);
  Problem all = ends;
  std::vector<int64_t> lengths(kZeroSequences, kZeroLength);
  lengths.insert(lengths.begin(), {1000, 777});
  lengths.insert(lengths.end(), {1024, 333});
  all.q_offsets = all.k_offsets = offsets_of(lengths).cuda();
  all.options.num_contexts.reset();
  all.options.num_targets.reset();

  const auto type = ends.q.options().dtype(kType);
  const Tensor arguments = at::zeros({kRows, 4 * kHeads * kHeadDim}, type);
  const Tensor results = at::empty_like(arguments);
  const Parts from(arguments, kHeads), to(results, kHeads);
  const auto place = [&](const Tensor& part, const Tensor& values) {
    part.slice(0, 0, kFirst).copy_(values.slice(0, 0, kFirst));
    part.slice(0, kEnd).copy_(values.slice(0, kFirst));
  };
  place(from.u, ends.dout);
  place(from.v, ends.v);
  place(from.q, ends.q);
  place(from.k, ends.k);
  const auto ends_of = [&](const Tensor& part) {
    return at::cat({part.slice(0, 0, kFirst), part.slice(0, kEnd)});
  };
  const auto framework = plain(ends, kType), expected = plain(ends, at::kDouble);
  for (const bool deterministic : {false, true}) {
    results.fill_(std::numeric_limits<double>::quiet_NaN());
    {
      const Deterministic mode(deterministic);
      attend(all, from, to);
    }
    const std::string what = fmt::format("deterministic={}", deterministic);
    expect_oracle_rule_by_sequence(ends,
                                   {ends_of(to.u), ends_of(to.q), ends_of(to.k), ends_of(to.v)},
                                   framework, expected, what);
    for (const Tensor& rows : results.slice(0, kFirst, kEnd).split(1 << 18)) {
      EXPECT_FALSE(rows.any().item<bool>()) << what << ": a result that should be 0 is not";
    }
  }
}

}  // namespace
}  // namespace seqfuse::hstu_attention_memory_cuda_test
