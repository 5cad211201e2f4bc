// Problems of attention under a mask, for the tests on the CPU and on a GPU.
#pragma once

#include <cmath>

#include "masks/user_masks.h"
#include "ops/torch/attention/masked_attention.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/masked_attention.h"

namespace seqfuse::test {

using masks::Mask;

struct MaskedSizes {
  int64_t batch = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, head_dim = 32;
};

// Leaves q, k, v and the gradients of out and lse.
struct MaskedProblem {
  Mask mask;
  Tensor q, k, v, dout, dlse;
  double scale;

  MaskedProblem(const Mask& m, const MaskedSizes& s, at::ScalarType type = at::kDouble)
      : mask(m), scale(1 / std::sqrt(static_cast<double>(s.head_dim))) {
    at::manual_seed(11);
    q = random({s.batch, s.heads, s.queries, s.head_dim}, type);
    k = random({s.batch, s.key_heads, s.keys, s.head_dim}, type);
    v = random({s.batch, s.key_heads, s.keys, s.head_dim}, type);
    dout = random(q.sizes(), type);
    dlse = random({s.batch, s.heads, s.queries}, type);
  }

  // out, lse, dq, dk, dv by attention(q, k, v) in a dtype.
  template <class Attention>
  std::vector<Tensor> run(at::TensorOptions type, Attention&& attention) const {
    const auto leaf = [&](const Tensor& t) { return t.detach().to(type).requires_grad_(); };
    const Tensor a = leaf(q), b = leaf(k), c = leaf(v);
    const auto [out, lse] = attention(a, b, c);
    // -infinity has no gradient.
    const Tensor finite = lse.masked_fill(lse.detach().isinf(), 0);
    ((out * dout.to(type)).sum() + (finite * dlse.to(lse.options())).sum()).backward();
    return {out.detach(), lse.detach(), a.grad(), b.grad(), c.grad()};
  }
  std::vector<Tensor> ours(at::TensorOptions type) const {
    auto blocks = ops::block_mask_tensors(masks::BlockMask(mask));
    for (Tensor& list : blocks.lists) list = list.to(type.device());
    return run(type, [&](const Tensor& a, const Tensor& b, const Tensor& c) {
      return ops::masked_attention(a, b, c, blocks, scale);
    });
  }
  std::vector<Tensor> plain(at::TensorOptions type) const {
    const Tensor dense = oracle::dense_mask(mask).to(type.device());
    return run(type, [&](const Tensor& a, const Tensor& b, const Tensor& c) {
      return oracle::masked_attention(a, b, c, dense, scale);
    });
  }

  // In each dtype, on their device, by the oracle rule.
  void check(const std::string& what, const std::vector<at::TensorOptions>& types) const {
    constexpr const char* kNames[] = {"out", "lse", "dq", "dk", "dv"};
    const auto reference = plain(at::kDouble);
    // ds is a difference, and may cancel: of sums over head_dim, times what it is multiplied by.
    const double products = max_abs(dout) * max_abs(v) * static_cast<double>(v.size(3)) * 0.25;
    const double cancelling = products * scale * std::max(max_abs(q), max_abs(k));
    for (const at::TensorOptions& type : types) {
      const auto actual = ours(type);
      const auto in_type = type.dtype() == at::kDouble ? reference : plain(type);
      for (size_t i = 0; i < 5; ++i) {
        const std::string name = what + " " + kNames[i];
        // Rows without keys are compared as they are, others by the rule.
        const Tensor none = reference[i].isinf(), here = none.to(type.device());
        EXPECT_TRUE(at::equal(actual[i].isinf(), here)) << name;
        // Our log-sum-exp of 16-bit inputs is float32.
        expect_oracle_rule(actual[i].masked_fill(here, 0),
                           in_type[i].masked_fill(here, 0).to(actual[i].scalar_type()),
                           reference[i].masked_fill(none, 0), i < 2 ? 2 : 5, name,
                           i < 2 ? 4 : cancelling);
      }
    }
  }
};

struct MaskedKind {
  const char* name;
  Mask (*make)(int64_t queries, int64_t keys);  // for a batch of 2 or any
};

inline std::vector<int64_t> parts_of(int64_t n) {
  return {n / 3, n / 5, n - n / 3 - n / 5 - n / 7};
}

inline const MaskedKind kMaskedKinds[] = {
    {"full", masks::full},
    {"causal", masks::causal},
    {"window", [](int64_t q, int64_t k) { return masks::window(q, k, 20, 5); }},
    {"dilated", [](int64_t q, int64_t k) { return masks::dilated(q, k, 64, 64, 4); }},
    {"longformer", [](int64_t q, int64_t k) { return masks::longformer(q, k, 16, 3); }},
    {"bigbird", [](int64_t q, int64_t k) { return masks::bigbird(q, k, 10, 2, 1, 3); }},
    {"padding",
     [](int64_t q, int64_t k) {
       return masks::lengths(q, k, std::vector{q, q / 2}, std::vector{k - k / 3, k / 2});
     }},
    {"window_and_padding",
     [](int64_t q, int64_t k) {
       return masks::window(q, k, 20, 20) &
              masks::lengths(q, k, std::vector{q / 2, q}, std::vector{k / 2, k});
     }},
    {"documents", [](int64_t q, int64_t k) { return masks::documents(q, k, {parts_of(k), {k}}); }},
    {"dense",
     [](int64_t q, int64_t k) {
       std::vector<uint8_t> allowed(static_cast<size_t>(2 * q * k));
       for (size_t i = 0; i < allowed.size(); ++i) allowed[i] = i * i % 7 == 2;
       return masks::from_dense(2, q, k, allowed);
     }},
};

// How keys come to scores of -infinity.
enum class LowScores { infinite_keys, overflowing_products };

// Every 65th key has scores of -infinity: no weight and no gradient, as if nobody saw it. Query 0
// sees no other key. Overflowing products: of finite numbers that 16 bits hold, but float32 sums.
inline void expect_low_scores_have_no_weight(LowScores how, at::TensorOptions type,
                                             int64_t head_dim, double tolerance,
                                             const std::string& what) {
  constexpr int64_t kTokens = 130, kEvery = 65;
  constexpr const char* kNames[] = {"out", "lse", "dq", "dk", "dv"};
  const bool overflowing = how == LowScores::overflowing_products;
  std::vector<uint8_t> others;
  for (int64_t i = 0; i < kTokens * kTokens; ++i) others.push_back(i % kTokens % kEvery != 0);
  const Mask causal = masks::causal(kTokens, kTokens);
  MaskedProblem problem(causal,
                        {.heads = 2, .queries = kTokens, .keys = kTokens, .head_dim = head_dim});
  problem.q.abs_();
  if (overflowing) {  // the first elements' products: 0, or -1e40
    problem.q.select(3, 0).fill_(1e20);
    problem.k.select(3, 0).zero_();
  }
  MaskedProblem unseen = problem;
  unseen.mask = causal & masks::from_dense(1, kTokens, kTokens, others);
  problem.k = problem.k.clone();
  const Tensor low = problem.k.slice(2, 0, kTokens, kEvery);
  if (overflowing)
    low.select(3, 0).fill_(-1e20);
  else
    low.fill_(-std::numeric_limits<double>::infinity());
  const auto actual = problem.ours(type), expected = unseen.ours(type);
  for (size_t i = 0; i < 5; ++i) {
    // On CUDA 0 times an infinite key is NaN in gradients (masked_attention.h).
    if (i >= 2 && !overflowing && type.device().is_cuda()) continue;
    // Without the first elements' gradients, which are differences times 1e20.
    const auto compared = [&](const Tensor& t) { return i < 2 ? t : t.slice(3, 1); };
    EXPECT_TRUE(at::allclose(compared(actual[i]), compared(expected[i]), tolerance, tolerance))
        << what << ' ' << kNames[i];
  }
}

// What memory held before does not matter: PyTorch fills new tensors with NaN, and scratch and shared
// memory hold infinities of a call before.
inline void expect_poison_changes_nothing(at::TensorOptions type, const std::string& what) {
  const MaskedSizes sizes{.batch = 2, .heads = 2, .queries = 70, .keys = 70, .head_dim = 40};
  MaskedProblem poison(masks::full(128, 128),
                       {.batch = 2, .heads = 2, .queries = 128, .keys = 128, .head_dim = 64});
  for (Tensor* t : {&poison.q, &poison.k, &poison.v, &poison.dout})
    t->fill_(std::numeric_limits<double>::infinity());
  for (const MaskedKind& kind : kMaskedKinds) {
    const MaskedProblem problem(kind.make(70, 70), sizes);
    const auto expected = problem.ours(type);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    poison.ours(type);
    const auto actual = problem.ours(type);
    at::globalContext().setDeterministicAlgorithms(false, false);
    for (size_t i = 0; i < 5; ++i)
      EXPECT_TRUE(at::equal(actual[i], expected[i])) << what << ' ' << kind.name << ' ' << i;
  }
}

}  // namespace seqfuse::test
