#include "cli/decode_ladder.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "cli/ids_file.h"
#include "models/gpt_neox/gpu_step.h"
#include "serving/decoding/decode_speed.h"
#include "serving/decoding/ladder.h"
#include "serving/decoding/perplexity.h"
#include "training/device/device.h"

namespace seqfuse::cli {
namespace {

using models::gpt_neox::Model;
using serving::Rung;
using serving::RungSpeed;

// A model with weights as in the file, and with int8 ones.
struct BothWeights {
  Model plain, int8;

  const Model& of(const Rung& rung) const { return rung.int8 ? int8 : plain; }
};

BothWeights open_both(DecodingFlags flags, const kv_cache::Rule& rule, int64_t texts) {
  const auto config = open_config(flags);
  Model plain = open_model(flags, "bench", config, rule, texts);
  flags.weights = "int8";
  return {std::move(plain), open_model(flags, "bench", config, rule, texts)};
}

// A text and its models, for the perplexity of each rung.
struct LadderText {
  BothWeights models;
  std::vector<int64_t> ids;

  double perplexity(const Rung& rung, const std::function<bool()>& interrupted) const {
    serving::Session session(models.of(rung), rule(), 1, rung.step);
    const auto losses =
        serving::token_losses(session, ids, 1, [&](int64_t) { return !interrupted(); });
    return std::exp(std::accumulate(losses.begin(), losses.end(), 0.0) /
                    static_cast<double>(losses.size()));
  }
  static kv_cache::Rule rule() { return kv_cache::Rule::streaming(4, 252); }
};

LadderText open_ladder_text(const DecodingFlags& decoding, const LadderFlags& flags) {
  DecodingFlags of_text = decoding;
  of_text.shape.clear();
  of_text.model = flags.text_model;
  return {open_both(of_text, LadderText::rule(), 1), read_ids(flags.ids_file)};
}

void check_possible(const Model& model, const kv_cache::Rule& rule, int64_t texts) {
  const std::string why_not = models::gpt_neox::GpuStep::why_not(model, rule, texts);
  SEQFUSE_CHECK_AS(UsageError, why_not.empty(),
                   "bench decode --ladder takes a decoding step on a GPU apart: {}", why_not);
}

}  // namespace

void print_ladder(const DecodingFlags& decoding, const LadderFlags& flags,
                  const std::function<bool()>& interrupted) {
  SEQFUSE_CHECK_AS(UsageError, decoding.weights == "auto",
                   "bench decode --ladder has --weights auto and int8 beside each other; got {}",
                   decoding.weights);
  SEQFUSE_CHECK_AS(UsageError, flags.text_model.empty() == flags.ids_file.empty(),
                   "bench decode --ladder: --text-model and --ids-file go together");
  SEQFUSE_CHECK_AS(UsageError, !training::choose_device(decoding.device, "").is_cpu(),
                   "bench decode --ladder takes a decoding step on a GPU apart; the device is cpu");
  serving::SpeedOptions options{.batch = flags.batch,
                                .cache_length = flags.length,
                                .steps = flags.tokens,
                                .interrupted = interrupted};
  const int64_t slots = serving::slots_of_measurement(options);
  const kv_cache::Rule rule = decoding.cache == "full"
                                  ? kv_cache::Rule::full(slots)
                                  : cache_rule(decoding, open_config(decoding), slots);
  const BothWeights models = open_both(decoding, rule, flags.batch);
  std::optional<LadderText> text;
  if (!flags.text_model.empty()) text = open_ladder_text(decoding, flags);
  check_possible(models.plain, rule, flags.batch);
  check_possible(models.int8, rule, flags.batch);
  if (text) check_possible(text->models.int8, LadderText::rule(), 1);

  std::vector<RungSpeed> speeds;
  if (!flags.json) fmt::print("{}", serving::ladder_heading());
  for (const Rung& rung : serving::ladder_rungs()) {
    options.step = rung.step;
    const auto measured = serving::measure_decode(models.of(rung), rule, options);
    if (!measured) break;
    RungSpeed speed{
        .rung = rung, .seconds = measured->median_seconds(), .launches = measured->launches};
    if (text) speed.perplexity = text->perplexity(rung, interrupted);
    if (interrupted()) break;
    speeds.push_back(std::move(speed));
    if (flags.json) continue;
    const bool has_rung_before = rung.ladder && speeds.size() > 1;
    fmt::print("{}", serving::ladder_line(speeds.back(),
                                          has_rung_before ? &speeds[speeds.size() - 2] : nullptr));
    std::fflush(stdout);
  }
  if (!flags.json) return;
  nlohmann::json rungs = nlohmann::json::array();
  for (const RungSpeed& speed : speeds) rungs.push_back(serving::ladder_json(speed));
  const nlohmann::json report = {
      {"model", decoding.shape.empty() ? decoding.model : decoding.shape},
      {"device", models.plain.device().str()},
      {"dtype", c10::toString(models.plain.dtype())},
      {"cache", rule.text()},
      {"cache_length", flags.length},
      {"batch", flags.batch},
      {"tokens", flags.tokens},
      {"perplexity_of",
       {{"model", flags.text_model},
        {"ids", flags.ids_file},
        {"cache", LadderText::rule().text()}}},
      {"rungs", std::move(rungs)}};
  fmt::print("{}\n", report.dump(1));
}

}  // namespace seqfuse::cli
