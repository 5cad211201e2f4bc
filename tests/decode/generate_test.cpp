// Generation: greedy against the oracle, batches of texts that end at different times, draws.
#include "serving/decoding/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/decode/tiny_model.h"

namespace seqfuse::generate_test {
namespace {

using kv_cache::Rule;
using models::gpt_neox::Model;
using serving::Finish;
using serving::GenerateOptions;
using serving::next_token;
using serving::SamplingOptions;
using serving::Session;
using Prompts = std::vector<std::vector<int64_t>>;

const test::TinyModel kTiny;

Model tiny_model(test::TensorMap tensors, at::ScalarType dtype = at::kDouble) {
  const auto config = kTiny.model_config();
  return {config, models::gpt_neox::make_weights(config, tensors, dtype, at::kCPU, "memory")};
}

std::vector<int64_t> oracle_greedy(const Rule& rule, const std::vector<int64_t>& prompt,
                                   int64_t count) {
  auto options = kTiny.oracle_options();
  if (rule.kind != kv_cache::Kind::full) {
    options.start = rule.start, options.recent = rule.recent;
    options.prune_every = rule.prune_every;
  }
  oracle::GptNeox model(options, kTiny.tensors());
  std::vector<double> logits;
  for (const int64_t id : prompt) logits = model.next(id);
  std::vector<int64_t> ids;
  while (static_cast<int64_t>(ids.size()) < count) {
    ids.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
    logits = model.next(ids.back());
  }
  return ids;
}

TEST(Generate, GreedyTokensOfBatchesAreThoseOfTheOracle) {
  const Model model = tiny_model(kTiny.tensors());
  const Prompts prompts = {
      test::some_ids(3, 41), test::some_ids(30, 41, 9), {7}, test::some_ids(12, 41, 5)};
  for (const Rule& rule :
       {Rule::full(60), Rule::streaming(2, 9), Rule::window(8, 3), Rule::streaming(1, 40)}) {
    Session session(model, rule, 4);
    const auto results = serving::generate(session, prompts, {.max_new_tokens = 25});
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(results[i].ids, oracle_greedy(rule, prompts[i], 25)) << rule.text() << ", " << i;
      EXPECT_EQ(results[i].finish, Finish::length);
    }
  }
}

TEST(Generate, TextsEndOnTheirOwn) {
  const Model model = tiny_model(kTiny.tensors());
  const Prompts prompts = {test::some_ids(3, 41), test::some_ids(6, 41, 9), {7}};
  const Rule rule = Rule::streaming(2, 9);
  std::vector<std::vector<int64_t>> expected;
  for (const auto& prompt : prompts) expected.push_back(oracle_greedy(rule, prompt, 30));
  // An eos that occurs in one text, and a stop in another.
  const int64_t eos = expected[0][4];
  GenerateOptions options{.max_new_tokens = 30, .eos_ids = {eos}};
  std::vector<int64_t> counts(3, 0);
  options.on_token = [&](int64_t row, int64_t) { return ++counts[row] < 11 || row != 2; };
  Session session(model, rule, 3);
  const auto results = serving::generate(session, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto& all = expected[i];
    auto length = static_cast<size_t>(std::find(all.begin(), all.end(), eos) - all.begin());
    Finish finish = length < 30 ? Finish::eos : Finish::length;
    if (i == 2 && length >= 11) length = 11, finish = Finish::stop;
    EXPECT_EQ(results[i].ids, std::vector<int64_t>(all.begin(), all.begin() + length)) << i;
    EXPECT_EQ(results[i].finish, finish) << i;
  }
}

TEST(Generate, AFullCacheEndsTheText) {
  const Model model = tiny_model(kTiny.tensors());
  const auto prompt = test::some_ids(5, 41);
  Session session(model, Rule::full(9), 1);
  const auto result = serving::generate(session, {prompt}, {.max_new_tokens = 30})[0];
  EXPECT_EQ(result.finish, Finish::cache_full);
  EXPECT_EQ(result.ids, oracle_greedy(Rule::full(9), prompt, 5));  // the last token needs no slot
}

TEST(Generate, InterruptionKeepsWhatIsThere) {
  const Model model = tiny_model(kTiny.tensors());
  int asked = 0;
  GenerateOptions options{.max_new_tokens = 30, .interrupted = [&] { return ++asked > 6; }};
  Session session(model, Rule::full(40), 1);
  const auto result = serving::generate(session, {{3, 4}}, options)[0];
  EXPECT_EQ(result.finish, Finish::interrupted);
  EXPECT_EQ(result.ids, oracle_greedy(Rule::full(40), {3, 4}, 6));
}

// A long prompt is read in parts, so that an interruption need not wait for its end.
TEST(Generate, InterruptionWhileAPromptIsRead) {
  const Model model = tiny_model(kTiny.tensors());
  std::vector<std::pair<int64_t, Finish>> ends;
  int asked = 0;
  GenerateOptions options{
      .max_new_tokens = 5,
      .on_end = [&](int64_t row, const auto& text) { ends.emplace_back(row, text.finish); },
      .interrupted = [&] { return ++asked == 4; }};  // the third part of the second prompt
  Session session(model, Rule::streaming(2, 9), 2);
  const auto results = serving::generate(session, {{3, 4}, test::some_ids(2000, 41)}, options);
  EXPECT_EQ(results[0].ids, oracle_greedy(Rule::streaming(2, 9), {3, 4}, 1));
  EXPECT_THAT(results[1].ids, testing::IsEmpty());
  EXPECT_THAT(ends, testing::ElementsAre(testing::Pair(0, Finish::interrupted),
                                         testing::Pair(1, Finish::interrupted)));
}

TEST(Session, ACopyGoesOnLikeItsOriginal) {
  const Model model = tiny_model(kTiny.tensors());
  const auto prompt = test::some_ids(30, 41);
  for (const Rule& rule : {Rule::full(60), Rule::streaming(2, 9), Rule::recompute(2, 9)}) {
    Session both(model, rule, 2), alone(model, rule, 1);
    both.extend(0, prompt);
    both.copy(0, 1);
    alone.extend(0, prompt);
    for (int64_t id = 5; id < 20; ++id) {  // the two go different ways
      const at::Tensor copied = both.step({40 - id, id}, {true, true})[1];
      EXPECT_TRUE(at::allclose(copied, alone.step({id}, {true})[0], 0, 1e-12)) << rule.text();
    }
  }
}

// Draws of a text do not depend on the others, nor on which batch it is in.
TEST(Generate, DrawsDependOnTheSeedAndTheTextAlone) {
  const Model model = tiny_model(kTiny.tensors());
  const Prompts prompts = {{3, 4}, {3, 4}, {9, 9, 9}};
  GenerateOptions options{.max_new_tokens = 20, .sampling = {.temperature = 1, .seed = 5}};
  Session together(model, Rule::full(40), 3);
  const auto expected = serving::generate(together, prompts, options);
  EXPECT_NE(expected[0].ids, expected[1].ids);
  for (uint64_t i = 0; i < 3; ++i) {
    Session alone(model, Rule::full(40), 1);
    EXPECT_EQ(serving::generate(alone, {prompts[i]}, options, i)[0].ids, expected[i].ids);
  }
  options.sampling.seed = 6;
  Session other(model, Rule::full(40), 3);
  EXPECT_NE(serving::generate(other, prompts, options)[0].ids, expected[0].ids);
}

TEST(Sampling, TheLowestOfEqualTokens) {
  EXPECT_EQ(next_token(std::vector<float>{1, 3, 2, 3}, {}, {}, 0, 0), 1);
  const SamplingOptions one{.temperature = 1, .top_k = 1};
  for (uint64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(next_token(std::vector<float>{1, 3, 2, 3}, one, {}, 0, step), 1);
  }
}

std::vector<double> shares(const std::vector<float>& logits, const SamplingOptions& options,
                           const std::vector<int64_t>& before = {}) {
  constexpr int kDraws = 20000;
  std::vector<double> shares(logits.size(), 0.0);
  for (uint64_t step = 0; step < kDraws; ++step) {
    shares[next_token(logits, options, before, 3, step)] += 1.0 / kDraws;
  }
  return shares;
}

// Within 5 standard deviations of 20,000 draws.
void expect_shares(const std::vector<double>& actual, const std::vector<double>& expected) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const double p = expected[i];
    EXPECT_NEAR(actual[i], p, 5 * std::sqrt(p * (1 - p) / 20000)) << i;
  }
}

TEST(Sampling, DrawsFollowTheProbabilities) {
  const auto log = [](double p) { return static_cast<float>(std::log(p)); };
  const std::vector<float> logits = {log(0.1), log(0.4), log(0.2), log(0.3)};
  expect_shares(shares(logits, {.temperature = 1}), {0.1, 0.4, 0.2, 0.3});
  const double sum = 0.01 + 0.16 + 0.04 + 0.09;
  expect_shares(shares(logits, {.temperature = 0.5}),
                {0.01 / sum, 0.16 / sum, 0.04 / sum, 0.09 / sum});
  expect_shares(shares(logits, {.temperature = 1, .top_k = 2}), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_shares(shares(logits, {.temperature = 1, .top_p = 0.65}), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_shares(shares(logits, {.temperature = 1, .top_p = 0.75}), {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  expect_shares(shares(logits, {.temperature = 1, .top_k = 3, .top_p = 0.7}),
                {0, 4.0 / 7, 0, 3.0 / 7});
}

TEST(Sampling, PenaltyOfTokensThatCameBefore) {
  // 2 / 1.6 = 1.25 < 1.5, applied once however often the token occurred; -1 * 1.6 falls below -1.5.
  EXPECT_EQ(next_token(std::vector<float>{2, 1.5F}, {.repetition_penalty = 1.6}, {0, 0, 0}, 0, 0),
            1);
  EXPECT_EQ(next_token(std::vector<float>{2, 1.5F}, {.repetition_penalty = 1.2}, {0, 0, 0}, 0, 0),
            0);
  EXPECT_EQ(next_token(std::vector<float>{-1, -1.5F}, {.repetition_penalty = 1.6}, {0}, 0, 0), 1);
}

TEST(Sampling, RefusesWhatMakesNoSense) {
  const auto error = [](const SamplingOptions& options) {
    return test::error_of([&] { options.check(); });
  };
  EXPECT_EQ(error({}), "no error");
  EXPECT_THAT(error({.temperature = -1}), testing::HasSubstr("the temperature is -1"));
  EXPECT_THAT(error({.top_k = -1}), testing::HasSubstr("top-k is -1"));
  EXPECT_THAT(error({.top_p = 0}), testing::HasSubstr("top-p is 0"));
  EXPECT_THAT(error({.repetition_penalty = 0}), testing::HasSubstr("penalty is 0"));
  EXPECT_THAT(
      test::error_of([] { next_token(std::vector<float>{0, std::nanf("")}, {}, {}, 0, 0); }),
      testing::HasSubstr("the logit of token 1 is NaN"));
}

}  // namespace
}  // namespace seqfuse::generate_test
