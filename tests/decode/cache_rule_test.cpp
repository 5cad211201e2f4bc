// Cache rules against the oracle, which stores unrotated keys and rotates all of them for every
// token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kv_cache/cache.h"
#include "ops/kernels/decode/step_rule.h"
#include "serving/decoding/generate.h"
#include "serving/decoding/perplexity.h"
#include "serving/decoding/session.h"
#include "tests/decode/tiny_model.h"
#include "tests/sanitized.h"

namespace seqfuse::cache_rule_test {
namespace {

using kv_cache::Rule;
using models::gpt_neox::Model;
using serving::Session;
using test::TinyModel;

Model model_of(const TinyModel& tiny, at::ScalarType dtype = at::kDouble) {
  const auto config = tiny.model_config();
  return {config,
          models::gpt_neox::make_weights(config, tiny.tensors(), dtype, at::kCPU, "memory")};
}

std::vector<double> oracle_losses(const TinyModel& tiny, const Rule& rule,
                                  const std::vector<int64_t>& ids) {
  auto options = tiny.oracle_options();
  options.start = rule.start;
  options.recent = rule.recent;
  options.prune_every = rule.prune_every;
  return oracle::GptNeox(options, tiny.tensors()).losses(ids);
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << what << ", token " << i;
  }
}

class Rules : public testing::TestWithParam<Rule> {};

// 150 tokens through caches of 1 to 24 slots: the rings wrap many times. Passes of several tokens
// match single tokens, even if they start before the cache is full or are longer than it.
TEST_P(Rules, AreThoseOfTheOracle) {
  const TinyModel tiny;
  const Model model = model_of(tiny);
  const auto ids = test::some_ids(150, tiny.vocab_size);
  const auto expected = oracle_losses(tiny, GetParam(), ids);
  for (const int64_t tokens_per_pass : {1, 2, 5, 16, 60, 149}) {
    Session session(model, GetParam(), 1);
    expect_near(serving::token_losses(session, ids, tokens_per_pass), expected, 1e-12,
                GetParam().text() + ", tokens a pass: " + std::to_string(tokens_per_pass));
  }
}

INSTANTIATE_TEST_SUITE_P(Cache, Rules,
                         testing::Values(Rule::streaming(4, 12), Rule::streaming(1, 7),
                                         Rule::streaming(3, 0), Rule::streaming(4, 12, 8),
                                         Rule::streaming(2, 3, 5), Rule::window(16),
                                         Rule::window(1), Rule::window(6, 3),
                                         Rule::streaming(20, 2)));

// The cache keeps the same tokens as the oracle.
TEST(CacheRule, PositionsSlotsAndSight) {
  for (const Rule& rule :
       {Rule::streaming(4, 12), Rule::streaming(2, 3, 5), Rule::window(6, 3), Rule::full(40)}) {
    std::vector<int64_t> kept;
    for (int64_t t = 0; t < 40; ++t) {
      EXPECT_EQ(rule.position(t), static_cast<int64_t>(kept.size())) << rule.text() << t;
      kept.push_back(t);
      std::set<int64_t> slots;
      for (int64_t other = 0; other <= t + 1; ++other) {
        const bool held = std::find(kept.begin(), kept.end(), other) != kept.end();
        EXPECT_EQ(rule.sees(t, other), held) << rule.text() << ": " << t << " and " << other;
        if (held) slots.insert(rule.slot(other));
      }
      EXPECT_EQ(slots.size(), kept.size()) << "two tokens in one slot";
      EXPECT_LT(*slots.rbegin(), rule.slots());
      const int64_t all = rule.start + rule.recent;
      if (static_cast<int64_t>(kept.size()) >= all + rule.prune_every && t + 1 < 40) {
        kept.erase(kept.begin() + rule.start, kept.end() - rule.recent);
      }
    }
  }
}

// The form of a rule for kernels: a token sees the slots of the tokens that the rule names.
TEST(CacheRule, SlotsThatKernelsSee) {
  for (const Rule& rule : {Rule::streaming(4, 12), Rule::streaming(2, 3, 5), Rule::streaming(3, 0),
                           Rule::window(6, 3), Rule::window(1), Rule::full(40)}) {
    const ops::StepRule step{
        .start = rule.start, .recent = rule.recent, .prune_every = rule.prune_every};
    std::vector<int64_t> held(rule.slots(), -1);
    for (int64_t t = 0; t < 40; ++t) {
      held[rule.slot(t)] = t;
      const ops::StepSight sight(step, t);
      for (int64_t slot = 0; slot < rule.slots(); ++slot) {
        EXPECT_EQ(sight.sees(static_cast<int>(slot)), held[slot] >= 0 && rule.sees(t, held[slot]))
            << rule.text() << ": token " << t << ", slot " << slot;
      }
      EXPECT_EQ(step.slot(t), rule.slot(t));
      EXPECT_EQ(step.position(t), rule.position(t));
    }
  }
}

// Recomputing all visible tokens equals caching only in the first layer, since deeper states
// include what their tokens saw. With one layer the two rules are the same.
TEST(CacheRule, RecomputeOfOneLayerIsStreaming) {
  TinyModel tiny;
  tiny.layers = 1;
  const Model model = model_of(tiny);
  const auto ids = test::some_ids(60, tiny.vocab_size);
  Session streaming(model, Rule::streaming(3, 9), 1), again(model, Rule::recompute(3, 9), 1);
  expect_near(serving::token_losses(again, ids), serving::token_losses(streaming, ids), 1e-12,
              "recompute");
}

TEST(CacheRule, RecomputeIsAFreshModelOnWhatIsSeen) {
  const TinyModel tiny;
  const Model model = model_of(tiny);
  const auto ids = test::some_ids(30, tiny.vocab_size);
  Session session(model, Rule::recompute(2, 6), 1);
  at::Tensor logits;
  for (const int64_t id : ids) logits = session.step({id}, {true})[0];
  std::vector<int64_t> seen(ids.begin(), ids.begin() + 2);
  seen.insert(seen.end(), ids.end() - 7, ids.end());
  oracle::GptNeox fresh(tiny.oracle_options(), tiny.tensors());
  std::vector<double> expected;
  for (const int64_t id : seen) expected = fresh.next(id);
  for (int64_t i = 0; i < tiny.vocab_size; ++i) {
    EXPECT_NEAR(logits[i].item<double>(), expected[i], 1e-12);
  }
}

// Control: positions other than those in the cache give different results.
TEST(CacheRule, TrueDistancesAreAnotherRule) {
  const TinyModel tiny;
  const Model model = model_of(tiny);
  const auto ids = test::some_ids(150, tiny.vocab_size);
  Rule rule = Rule::streaming(4, 12);
  rule.true_distances = true;
  Session session(model, rule, 1);
  const auto losses = serving::token_losses(session, ids);
  const auto expected = oracle_losses(tiny, Rule::streaming(4, 12), ids);
  double difference = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    difference = std::max(difference, std::abs(losses[i] - expected[i]));
  }
  EXPECT_GT(difference, 1e-2);
}

// A text that the model itself wrote under the right rule: another rule predicts it worse.
TEST(CacheRule, WrongPositionsPredictWorse) {
  const TinyModel tiny;
  const Model model = model_of(tiny);
  Rule rule = Rule::streaming(4, 12);
  Session writer(model, rule, 1);
  const auto written = serving::generate(
      writer, {{3}}, {.max_new_tokens = 1500, .sampling = {.temperature = 1, .seed = 2}});
  std::vector<int64_t> text = {3};
  text.insert(text.end(), written[0].ids.begin(), written[0].ids.end());
  const auto perplexity = [&] {
    Session session(model, rule, 1);
    const auto losses = serving::token_losses(session, text, 250);
    return std::exp(std::accumulate(losses.begin(), losses.end(), 0.0) /
                    static_cast<double>(losses.size()));
  };
  const double right = perplexity();
  rule.true_distances = true;
  EXPECT_GT(perplexity(), 1.15 * right);
}

// Angles at a million tokens and later are those of exact arithmetic.
TEST(CacheRule, AnglesDoNotDrift) {
  const kv_cache::Rotary rotary(20, 10000, at::kCPU);
  const at::Tensor positions = at::tensor(std::vector<int64_t>{1000003, 123456789, 1}, at::kLong);
  const auto angles = rotary.angles(positions, at::kDouble);
  for (int64_t i = 0; i < 10; ++i) {
    const auto frequency = static_cast<long double>(rotary.frequencies()[i].item<double>());
    for (int64_t p = 0; p < 3; ++p) {
      const long double angle = frequency * static_cast<long double>(positions[p].item<int64_t>());
      EXPECT_NEAR(angles.cos[p][i].item<double>(), static_cast<double>(std::cos(angle)), 2e-8);
      EXPECT_NEAR(angles.sin[p][i].item<double>(), static_cast<double>(std::sin(angle)), 2e-8);
    }
  }
}

// A text of one pattern of seven tokens, a million tokens through a cache of 12: what is predicted at
// the end is what was predicted soon after the cache was full, in float32 as in float64.
TEST(CacheRule, AMillionTokensWithoutDrift) {
  TinyModel tiny;
  tiny.layers = 1;
  const Model model = model_of(tiny, at::kFloat), exact = model_of(tiny);
  const int64_t count = kSanitized ? 21'000 : 1'001'000, early = 700;  // multiples of 7
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back((i * i + 3) % 7);
  Session session(model, Rule::streaming(2, 9), 1), reference(exact, Rule::streaming(2, 9), 1);
  const auto losses = serving::token_losses(session, ids, 500);
  const auto expected = serving::token_losses(reference, std::span(ids).subspan(0, 2 * early));
  ASSERT_EQ(losses.size(), count - 1);
  for (int64_t i = 0; i < early - 1; ++i) {
    ASSERT_NEAR(losses[count - early + i], expected[early + i], 2e-5) << i;
  }
}

}  // namespace
}  // namespace seqfuse::cache_rule_test
