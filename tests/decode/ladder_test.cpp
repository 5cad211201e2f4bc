// The parts of bench decode --ladder and --stream, without a GPU.
#include "serving/decoding/ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "serving/decoding/perplexity.h"
#include "serving/decoding/stream_speed.h"
#include "tests/decode/tiny_model.h"

namespace seqfuse::ladder_test {
namespace {

using kv_cache::Rule;
using models::gpt_neox::Model;
using models::gpt_neox::StepOptions;
using serving::Rung;
using test::TinyModel;
using testing::HasSubstr;

int parts_of(const Rung& rung) {
  const StepOptions& step = rung.step;
  return step.graph + step.own_kernels + step.fused_norms + step.merged_linears +
         step.early_starts + rung.int8;
}

TEST(Ladder, ARungAddsOnePart) {
  const auto rungs = serving::ladder_rungs();
  for (int i = 0; i < 7; ++i) {
    EXPECT_TRUE(rungs[i].ladder);
    EXPECT_EQ(parts_of(rungs[i]), i) << rungs[i].name;
  }
  StepOptions fastest = rungs[6].step;
  EXPECT_EQ(fastest, StepOptions{}) << "the top of the ladder is what generate does";
}

TEST(Ladder, HasEveryChoiceOfParts) {
  const auto rungs = serving::ladder_rungs();
  EXPECT_EQ(rungs.size(), 34U);
  std::set<std::string> found;
  for (const Rung& rung : rungs) {
    found.insert(serving::ladder_json({.rung = {.step = rung.step, .int8 = rung.int8}}).dump());
  }
  EXPECT_EQ(found.size(), 34U) << "two are the same";
  EXPECT_EQ(rungs[7].name, "own kernels alone");
  EXPECT_THAT(rungs.back().name, HasSubstr("int8"));
}

TEST(Ladder, LinesSayWhatWasMeasured) {
  const auto rungs = serving::ladder_rungs();
  const serving::RungSpeed before{.rung = rungs[2], .seconds = 0.004},
      after{.rung = rungs[3], .seconds = 0.002, .launches = 1, .perplexity = 15.2622};
  EXPECT_EQ(serving::ladder_line(after, &before),
            "+ fused norms                    +       +     +      -     -    -         2   2.000 "
            "       1    15.2622\n");
  EXPECT_EQ(serving::ladder_heading().size(), serving::ladder_line(before, nullptr).size());
  const auto json = serving::ladder_json(after);
  EXPECT_EQ(json["tpot_ms"].get<double>(), 2);
  EXPECT_EQ(json["launches"].get<int>(), 1);
  EXPECT_FALSE(json["merged_linears"].get<bool>());
  EXPECT_TRUE(serving::ladder_json(before)["perplexity"].is_null());
}

Model model_of(const TinyModel& tiny, at::ScalarType dtype) {
  const auto config = tiny.model_config();
  return {config,
          models::gpt_neox::make_weights(config, tiny.tensors(), dtype, at::kCPU, "memory")};
}

// A pass of fixed shapes, as a CUDA graph records it, is one of begin_step.
TEST(Ladder, StepsOfFixedShapesAreTheSame) {
  const TinyModel tiny;
  const Model model = model_of(tiny, at::kDouble);
  for (const Rule& rule : {Rule::streaming(2, 5), Rule::window(6, 3), Rule::full(40)}) {
    kv_cache::Cache fixed = model.make_cache(rule, 2), plain = model.make_cache(rule, 2);
    for (const int64_t id : test::some_ids(40, tiny.vocab_size)) {
      const at::Tensor ids = at::tensor({id, (id + 1) % tiny.vocab_size}, at::kLong).unsqueeze(1);
      fixed.begin_step_on_device();
      const at::Tensor given = model.states(ids, fixed);
      fixed.lengths_on_device().add_(1);
      fixed.count_step({true, true});
      plain.begin_step({true, true});
      const at::Tensor expected = model.states(ids, plain);
      EXPECT_LT((given - expected).abs().max().item<double>(), 1e-12) << rule.text();
    }
    EXPECT_EQ(fixed.length(0), plain.length(0));
  }
}

TEST(Stream, LossesAreThoseOfPerplexity) {
  const TinyModel tiny;
  const Model model = model_of(tiny, at::kFloat);
  const auto text = test::some_ids(7, tiny.vocab_size);
  const Rule rule = Rule::streaming(2, 9);
  std::vector<int64_t> ends;
  const auto parts = serving::measure_stream(
      model, rule, text,
      {.tokens = 60, .part = 14, .on_part = [&](const auto& part) { ends.push_back(part.end); }});
  EXPECT_THAT(ends, testing::ElementsAre(14, 28, 42, 56, 60));
  std::vector<int64_t> repeated;
  for (int i = 0; i < 61; ++i) repeated.push_back(text[i % 7]);
  serving::Session session(model, rule, 1);
  const auto losses = serving::token_losses(session, repeated);
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t tokens = i < 4 ? 14 : 4;
    EXPECT_EQ(parts[i].tokens, tokens);
    const auto begin = losses.begin() + static_cast<ptrdiff_t>(14 * i);
    EXPECT_NEAR(parts[i].loss,
                std::accumulate(begin, begin + tokens, 0.0) / static_cast<double>(tokens), 1e-5);
    EXPECT_GT(parts[i].seconds, 0);
    EXPECT_GT(parts[i].memory, 1'000'000);
  }
  // The cache is full after 12 tokens; from then on every part but the last is the same text.
  const auto spread = serving::spread_of(parts, rule, 14);
  EXPECT_EQ(spread.parts, 3);
  EXPECT_LT(spread.loss, 0.01);
}

TEST(Stream, FlatIsWithinWhatTheHeaderSays) {
  const Rule rule = Rule::streaming(4, 15);
  const std::vector<serving::StreamPart> parts = {
      {.end = 10, .tokens = 10, .seconds = 9, .loss = 9, .memory = 1},  // before the cache is full
      {.end = 20, .tokens = 10, .seconds = 9, .loss = 9, .memory = 1},
      {.end = 30, .tokens = 10, .seconds = 1.00, .loss = 3.000, .memory = 5},
      {.end = 40, .tokens = 10, .seconds = 1.01, .loss = 3.004, .memory = 5},
      {.end = 50, .tokens = 10, .seconds = 1.015, .loss = 3.002, .memory = 5},
      {.end = 57, .tokens = 7, .seconds = 9, .loss = 9, .memory = 9}};  // not a whole part
  auto spread = serving::spread_of(parts, rule, 10);
  EXPECT_EQ(spread.parts, 3);
  EXPECT_NEAR(spread.seconds, 0.015, 1e-12);
  EXPECT_NEAR(spread.loss, 0.004, 1e-12);
  EXPECT_EQ(spread.memory, 0);
  const at::Device gpu(at::kCUDA, 0), host(at::kCPU);
  EXPECT_TRUE(spread.is_flat(gpu));
  spread.memory = 1;
  EXPECT_FALSE(spread.is_flat(gpu));
  EXPECT_TRUE(spread.is_flat(host));
  spread.loss = 0.02;
  EXPECT_FALSE(spread.is_flat(host));
  spread.loss = 0, spread.seconds = 0.03;
  EXPECT_FALSE(spread.is_flat(host));
  EXPECT_FALSE(serving::spread_of({}, rule, 10).is_flat(host));
}

TEST(Stream, AnInterruptionKeepsWhatIsThere) {
  const TinyModel tiny;
  const Model model = model_of(tiny, at::kFloat);
  int asked = 0;
  const auto parts = serving::measure_stream(
      model, Rule::streaming(2, 9), test::some_ids(7, tiny.vocab_size),
      {.tokens = 60, .part = 14, .interrupted = [&] { return asked++ == 17; }});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].end, 17);
  EXPECT_EQ(parts[1].tokens, 3);
}

TEST(Stream, PartsAreWholeTexts) {
  EXPECT_EQ(serving::part_for(2049), 5 * 2049);
  EXPECT_EQ(serving::part_for(7), 9996 + 7);
  EXPECT_EQ(serving::part_for(9'000), 9'000);
  EXPECT_EQ(serving::part_for(1'000'000), 10'000);
}

TEST(Stream, RefusesWhatItCannotMeasure) {
  const TinyModel tiny;
  const Model model = model_of(tiny, at::kFloat);
  const auto text = test::some_ids(7, tiny.vocab_size);
  const auto error = [&](const Rule& rule, int64_t tokens, int64_t part) {
    return test::error_of(
        [&] { serving::measure_stream(model, rule, text, {.tokens = tokens, .part = part}); });
  };
  EXPECT_THAT(error(Rule::full(50), 60, 10), HasSubstr("60 tokens in a full cache of 50"));
  EXPECT_THAT(error(Rule::window(9), 5, 10), HasSubstr("5 tokens in parts of 10"));
}

}  // namespace
}  // namespace seqfuse::ladder_test
