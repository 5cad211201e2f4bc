// Shares of small probabilities against probabilities that are computed here from the weights.
#include "serving/encoding/attention_sparsity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/encoder/tiny_bert.h"
#include "tests/missing_gpu.h"

namespace seqfuse::attention_sparsity_test {
namespace {

using at::Tensor;
using models::bert::SequenceMask;
using serving::AttentionSparsity;
using test::TinyBatch;
using test::TinyBert;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::vector<double> kThresholds{.1, .01, 1e-4};

SequenceMask sliding() {
  return SequenceMask::parse(std::vector<std::string>{"sliding:3"});
}

// [heads, n, n] of the layer that gets `input` [n, H]; -1 where the mask forbids.
Tensor probabilities(const TinyBert& bert, int64_t layer, const Tensor& input, bool masked) {
  const auto tensors = bert.tensors();
  const std::string name = "encoder.layer." + std::to_string(layer) + ".attention.self.";
  const int64_t n = input.size(0);
  const auto by_head = [&](const char* part) {
    return at::linear(input, tensors.at(name + part + ".weight"), tensors.at(name + part + ".bias"))
        .view({n, bert.heads, bert.head_dim})
        .transpose(0, 1);
  };
  Tensor scores = by_head("query").matmul(by_head("key").transpose(1, 2)) /
                  std::sqrt(static_cast<double>(bert.head_dim));
  const Tensor at = at::arange(n);
  const Tensor far = (at.unsqueeze(0) - at.unsqueeze(1)).abs() > 3;
  if (masked) scores = scores.masked_fill(far, -std::numeric_limits<double>::infinity());
  const Tensor result = at::softmax(scores, -1);
  return masked ? result.masked_fill(far, -1) : result;
}

void expect_as_computed(bool masked) {
  const TinyBert bert{.layers = 2};
  TinyBert one_layer = bert;
  one_layer.layers = 1;
  const TinyBatch batch({9, 1, 17}, bert.vocab_size);
  const auto model = bert.model(at::kDouble), below = one_layer.model(at::kDouble);
  const SequenceMask mask = masked ? sliding() : SequenceMask();
  const auto found = serving::attention_sparsity(model, mask, batch.ids, kThresholds);
  ASSERT_TRUE(found.has_value());

  const at::NoGradGuard no_grad;
  std::vector<Tensor> all(2);  // of each layer, [heads, pairs of all sentences]
  for (const auto& ids : batch.ids) {
    const std::vector<int64_t> lengths{static_cast<int64_t>(ids.size())};
    const models::bert::Tokens tokens{at::tensor(ids, at::kLong), Tensor(),
                                      models::bert::positions_of(lengths, at::kCPU)};
    const auto rows = models::bert::Rows::jagged(lengths, mask, at::kCPU);
    const Tensor inputs[] = {model.embed(tokens), below.states(tokens, rows)};
    for (int64_t layer = 0; layer < 2; ++layer) {
      const Tensor p = probabilities(bert, layer, inputs[layer], masked).flatten(1);
      all[layer] = all[layer].defined() ? at::cat({all[layer], p}, 1) : p;
    }
  }
  EXPECT_EQ(found->sentences, 3);
  EXPECT_EQ(found->tokens, 27);
  const double queries = 27;
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < bert.heads; ++head) {
      const Tensor seen = all[layer][head].masked_select(all[layer][head] >= 0);
      EXPECT_EQ(found->pairs, seen.numel());
      for (size_t t = 0; t < kThresholds.size(); ++t) {
        const Tensor small = seen.masked_select(seen < kThresholds[t]);
        EXPECT_DOUBLE_EQ(found->of(found->share, t, layer, head),
                         static_cast<double>(small.numel()) / static_cast<double>(seen.numel()));
        EXPECT_NEAR(found->of(found->mass, t, layer, head), small.sum().item<double>() / queries,
                    1e-12);
      }
    }
  }
  EXPECT_GT(found->of(found->share, 1, 0, 0), 0);  // else nothing was compared
  EXPECT_DOUBLE_EQ(found->of_layer(found->share, 1, 0),
                   (found->of(found->share, 1, 0, 0) + found->of(found->share, 1, 0, 1)) / 2);
}

TEST(AttentionSparsity, AsComputedFromTheWeights) {
  expect_as_computed(false);
}

TEST(AttentionSparsity, UnderAMaskOnlyItsPairsCount) {
  expect_as_computed(true);
}

TEST(AttentionSparsity, StopsAndRefuses) {
  const TinyBert bert;
  const auto model = bert.model(at::kFloat);
  const TinyBatch batch({4, 5, 6}, bert.vocab_size);
  int64_t calls = 0;
  const auto stopped = serving::attention_sparsity(model, {}, batch.ids, {.1}, [&](int64_t done) {
    EXPECT_EQ(done, ++calls);
    return done < 2;
  });
  EXPECT_FALSE(stopped.has_value());
  EXPECT_EQ(calls, 2);
  for (const double threshold : {0.0, -1.0, 1.5, std::nan("")}) {
    EXPECT_THAT([&] { serving::attention_sparsity(model, {}, batch.ids, {threshold}); },
                ThrowsMessage<UsageError>(HasSubstr("threshold of attention is")));
  }
}

TEST(AttentionSparsityCuda, IsNearTheCpu) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  const TinyBert bert;
  const TinyBatch batch({33, 64, 5}, bert.vocab_size);
  const auto on_cpu =
      serving::attention_sparsity(bert.model(at::kDouble), sliding(), batch.ids, kThresholds);
  const auto on_gpu = serving::attention_sparsity(bert.model(at::kHalf, at::kCUDA), sliding(),
                                                  batch.ids, kThresholds);
  EXPECT_EQ(on_gpu->pairs, on_cpu->pairs);
  for (size_t i = 0; i < on_cpu->share.size(); ++i) {
    EXPECT_NEAR(on_gpu->share[i], on_cpu->share[i], .01);
    EXPECT_NEAR(on_gpu->mass[i], on_cpu->mass[i], .002);
  }
}

}  // namespace
}  // namespace seqfuse::attention_sparsity_test
