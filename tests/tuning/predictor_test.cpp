// The predictor on made-up times: what it learns, what it saves, what it refuses; ranks and regret.
#include "tuning/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "tests/temporary_directory.h"
#include "tests/tuning/made_up_times.h"
#include "tuning/validation.h"

namespace seqfuse::predictor_test {
namespace {

using fusion::Scheme;
using testing::HasSubstr;
using testing::ThrowsMessage;
using tuning::Example;
using tuning::Regressor;
using tuning::Setting;

const Setting kShort = bert_setting(8, 512, "sliding:32", .12);
const Setting kLong = bert_setting(16, 2048, "sliding:32", .03);
const Setting kMiddle = bert_setting(16, 1024, "sliding:32", .06);

TEST(Predictor, HeldOutSchemesAndSettings) {
  const auto examples = made_up_examples({kShort, kMiddle, kLong}, .01, 1);
  const tuning::BoostingOptions fewer{.trees = 100, .depth = 4};
  const auto schemes = tuning::hold_out_schemes(examples, fewer, 3, 1);
  ASSERT_EQ(schemes.settings.size(), 3U);
  for (const tuning::HeldOut& held : schemes.settings) {
    EXPECT_EQ(held.examples, 720);
    EXPECT_GT(held.correlation, .95) << tuning::printed(held.setting);
    EXPECT_LT(held.regret[2], .03) << tuning::printed(held.setting);
  }
  // A length between those that it has seen, and their ends.
  const auto settings = tuning::hold_out_settings(examples, fewer);
  ASSERT_EQ(settings.settings.size(), 3U);
  for (const tuning::HeldOut& held : settings.settings) {
    EXPECT_GT(held.correlation, .8) << tuning::printed(held.setting);
    EXPECT_LT(held.regret[1], .1) << tuning::printed(held.setting);
  }
}

TEST(Predictor, TimesAreNearWhatWasMeasured) {
  const auto examples = made_up_examples({kMiddle}, 0, 1);
  Regressor regressor;
  regressor.fit(examples);
  for (const Example& example : examples) {
    EXPECT_NEAR(regressor.predict(kMiddle, example.scheme), example.milliseconds,
                .05 * example.milliseconds);
  }
  std::vector<double> times;
  for (const Example& example : examples) times.push_back(example.milliseconds);
  std::sort(times.begin(), times.end());
  EXPECT_DOUBLE_EQ(regressor.fast_below(kMiddle), (times[359] + times[360]) / 2);
  // For another setting, the median of its predictions: half of the programs are below it.
  const double fast = regressor.fast_below(kLong);
  int below = 0;
  for (const Scheme& scheme : legal_schemes())
    below += regressor.predict(kLong, scheme) < fast ? 1 : 0;
  EXPECT_GT(below, 300);
  EXPECT_LE(below, 360);
}

// Twenty of 720 schemes, as in a search, of which ten have attention written by hand: of the ten that it
// then expects to be the fastest, one nearly is.
TEST(Predictor, FewExamplesAreEnoughForARanking) {
  auto examples = made_up_examples({kMiddle}, .005, 2);
  Random random(3);
  for (int repetition = 0; repetition < 3; ++repetition) {
    random.shuffle(examples);
    std::vector<Example> few;
    for (const bool by_hand : {true, false}) {
      size_t left = 10;
      for (const Example& example : examples) {
        if (left == 0 || example.scheme.has({2, 6}) != by_hand) continue;
        few.push_back(example);
        --left;
      }
    }
    Regressor regressor;
    regressor.fit(few);
    std::vector<double> times, predicted;
    for (const Example& example : examples) {
      times.push_back(example.milliseconds);
      predicted.push_back(regressor.predict(kMiddle, example.scheme));
    }
    EXPECT_GT(tuning::rank_correlation(times, predicted), .4);
    EXPECT_LT(tuning::top_k_regret(times, predicted, 10), .1);
  }
}

TEST(Ridge, ByHandAndWithoutVariance) {
  // y = 1 + 2 a on a = -1, 1 (variance 1): with penalty p the weight is 2 * 2 / (2 + p).
  const std::vector<double> x{-1, 5, 1, 5}, y{-1, 3};
  tuning::Ridge ridge;
  ridge.fit({x, 2}, y, 2);
  EXPECT_DOUBLE_EQ(ridge.intercept(), 1);
  EXPECT_DOUBLE_EQ(ridge.weights()[0], 1);
  EXPECT_EQ(ridge.weights()[1], 0);
  EXPECT_DOUBLE_EQ(ridge.predict(std::vector<double>{3, 7}), 4);
  EXPECT_THROW(ridge.fit({x, 2}, y, 0), Error);
  EXPECT_THROW(ridge.fit({x, 2}, std::vector<double>{1}, 1), Error);
  EXPECT_THROW(ridge.predict(std::vector<double>{1}), Error);
}

TEST(Predictor, SavesAndLoadsEveryBit) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "times.model";
  const auto examples = made_up_examples({kShort, kLong}, .02, 3);
  Regressor regressor(tuning::BoostingOptions{.trees = 40}),
      again(tuning::BoostingOptions{.trees = 40});
  regressor.fit(examples);
  again.fit(examples);
  regressor.provenance = {.legal_forms = false,
                          .origin = tuning::Origin{"NVIDIA H200", "580.95", "0.1.0"},
                          .date = "2026-11-30T22:05:00Z"};
  regressor.save(file);
  const Regressor loaded = Regressor::load(file);
  for (const Scheme& scheme : legal_schemes()) {
    EXPECT_EQ(loaded.predict(kMiddle, scheme), regressor.predict(kMiddle, scheme));
    EXPECT_EQ(again.predict(kMiddle, scheme), regressor.predict(kMiddle, scheme));
  }
  EXPECT_EQ(loaded.known().size(), 2U);
  EXPECT_TRUE(loaded.known()[1].setting == kLong);
  EXPECT_EQ(loaded.fast_below(kLong), regressor.fast_below(kLong));
  EXPECT_FALSE(loaded.provenance.legal_forms);
  EXPECT_TRUE(loaded.provenance.origin == regressor.provenance.origin);
  EXPECT_EQ(loaded.provenance.date, "2026-11-30T22:05:00Z");
}

TEST(Predictor, RefusesDamagedFiles) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "times.model";
  const auto refused = [&](const std::string& text, const std::string& why) {
    write_file_atomically(file, text);
    EXPECT_THAT([&] { Regressor::load(file); }, ThrowsMessage<DataError>(HasSubstr(why))) << why;
  };
  refused("", "no predictor");
  refused("[1, 2]", "no predictor");
  refused(R"({"format": "another"})", "no predictor");
  Regressor regressor(tuning::BoostingOptions{.trees = 2});
  regressor.fit(made_up_examples({kShort}, 0, 1));
  regressor.save(file);
  const std::string good = read_file(file);
  refused(good.substr(0, good.size() / 2), "no predictor");
  const auto changed = [&](const auto& change, const std::string& why) {
    auto model = nlohmann::json::parse(good);
    change(model);
    refused(model.dump(), why);
  };
  changed([](auto& m) { m["format_version"] = 9; }, "its format is 9");
  changed([](auto& m) { m["features"].erase(0); }, "other features");
  changed([](auto& m) { m.erase("base"); }, "damaged predictor");
  changed([](auto& m) { m["weights"].erase(0); }, "it has 25 weights");
  changed([](auto& m) { m["trees"][0][0][2] = 0; }, "points to");
  changed([](auto& m) { m["settings"][0]["seq"] = 0; }, "seq is 0");
  EXPECT_THROW(Regressor::load(directory.path() / "none"), IoError);
}

TEST(Predictor, RefusesWhatTeachesNothing) {
  const Scheme scheme, other = Scheme::from_number(41130);
  Regressor regressor;
  const auto fit = [&](const std::vector<Example>& examples) {
    return [&regressor, examples] { regressor.fit(examples); };
  };
  EXPECT_THAT(fit({{kShort, scheme, 3}}),
              ThrowsMessage<DataError>(HasSubstr("1 measured scheme; expected two")));
  EXPECT_THAT(fit({{kShort, scheme, 3}, {kShort, other, 3}}),
              ThrowsMessage<DataError>(HasSubstr("all 2 times are 3 ms")));
  EXPECT_THAT(fit({{kShort, scheme, 3}, {kShort, other, std::nan("")}}),
              ThrowsMessage<Error>(HasSubstr("a time of nan ms")));
  EXPECT_THAT([&] { regressor.predict(kShort, scheme); },
              ThrowsMessage<Error>(HasSubstr("not trained")));
  fit({{kShort, scheme, 3}, {kShort, other, 2}})();  // two are enough to fit
  EXPECT_GT(regressor.predict(kShort, scheme), 0);
}

TEST(Ranks, ByHand) {
  const std::vector<double> a{1, 2, 3, 4}, reversed{9, 7, 5, 1}, tied{1, 1, 2, 2}, flat{5, 5, 5, 5};
  EXPECT_DOUBLE_EQ(tuning::rank_correlation(a, a), 1);
  EXPECT_DOUBLE_EQ(tuning::rank_correlation(a, reversed), -1);
  // Ranks .5, .5, 2.5, 2.5 against 0 to 3: 4 / sqrt(4 * 5).
  EXPECT_DOUBLE_EQ(tuning::rank_correlation(a, tied), 4 / std::sqrt(20.0));
  EXPECT_TRUE(std::isnan(tuning::rank_correlation(a, flat)));
  EXPECT_TRUE(std::isnan(tuning::rank_correlation({a.data(), 1}, {a.data(), 1})));
  // The three that are predicted fastest have 12, 11 and 30; the best of all is 10.
  const std::vector<double> measured{10, 11, 12, 30}, predicted{9, 3, 1, 4};
  EXPECT_DOUBLE_EQ(tuning::top_k_regret(measured, predicted, 1), .2);
  EXPECT_NEAR(tuning::top_k_regret(measured, predicted, 2), .1, 1e-12);
  EXPECT_NEAR(tuning::top_k_regret(measured, predicted, 3), .1, 1e-12);
  EXPECT_DOUBLE_EQ(tuning::top_k_regret(measured, predicted, 9), 0);
}

TEST(Ranks, FewSchemesHoldNoneOut) {
  auto examples = made_up_examples({kShort}, 0, 1);
  examples.resize(2);
  EXPECT_TRUE(tuning::hold_out_schemes(examples, {}, 5, 1).settings.empty());
  EXPECT_TRUE(tuning::hold_out_settings(examples, {}).settings.empty());
}

// Features by hand: batch 2 of 8 tokens, hidden 4, 2 heads, inner 8, in float16.
TEST(Features, ValueBytes) {
  const Setting small{.model = "small",
                      .hidden = 4,
                      .heads = 2,
                      .inner = 8,
                      .layers = 1,
                      .batch = 2,
                      .seq = 8,
                      .mask = "none",
                      .dtype = "float16"};
  // Rows 16: H values 64, 3 H 192, I 128, scores 2 * 2 * 64 = 256. Read + written, operator by operator.
  const int unfused = (64 + 192) + (192 + 192) + (192 + 256) + (256 + 256) + (256 + 256) +
                      (256 + 192 + 64) + (64 + 64) + (64 + 64) + (64 + 64 + 64) + (64 + 64) +
                      (64 + 128) + (128 + 128) + (128 + 64) + (64 + 64 + 64) + (64 + 64);
  EXPECT_EQ(tuning::value_bytes(small, Scheme()), 2 * unfused);
  // QK to transpose in one: from 192 values to 64.
  const std::vector<fusion::Segment> attention{{2, 6}};
  const int apart = (192 + 256) + (256 + 256) + (256 + 256) + (256 + 192 + 64) + (64 + 64);
  EXPECT_EQ(tuning::value_bytes(small, Scheme(attention, fusion::Mha::written_by_hand)),
            2 * (unfused - apart + 192 + 64));
  std::vector<double> row;
  tuning::append_features(small, Scheme(), row);
  EXPECT_EQ(row.size(), tuning::feature_names().size());
}

}  // namespace
}  // namespace seqfuse::predictor_test
