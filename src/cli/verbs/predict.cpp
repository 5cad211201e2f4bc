// seqfuse predict SCHEME... --model M: how long schemes take; --train FILE: learns it from measured ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/command_line.h"
#include "cli/verbs.h"
#include "fusion/legality.h"
#include "fusion/scheme_text.h"
#include "tuning/predictor.h"
#include "tuning/training_data.h"
#include "tuning/validation.h"

namespace seqfuse::cli {
namespace {

using nlohmann::json;
using tuning::Regressor;
using tuning::Setting;

struct PredictFlags {
  std::vector<std::string> schemes, training_files;
  std::string model, card, encoder, mask, dtype;
  int64_t batch = 0, seq = 0, folds = 5, seed = 1;
  bool json = false;

  void add_to(CLI::App& app) {
    auto* given = app.add_option("SCHEME", schemes, "16 characters 0 or 1, or 0 to 65535");
    app.add_option("--model", model, "the predictor's file")->required()->check(kPath);
    auto* train = app.add_option("--train", training_files,
                                 "learn from these and write --model: a database of\n"
                                 "`seqfuse tune`, a CSV file of it, or lines of a scheme and\n"
                                 "milliseconds; FILE@BATCH,SEQ,MASK says what lines are of")
                      ->check(kPath)
                      ->excludes(given);
    app.add_option("--batch", batch, "sentences: of these measurements; of the prediction")
        ->check(whole_number(1));
    app.add_option("--seq", seq, "tokens of a sentence, the same way")->check(whole_number(1));
    app.add_option("--mask", mask,
                   "as for `seqfuse encode`; several joined by +: causal+sliding:8");
    app.add_option("--encoder", encoder, "the encoder's name in the measurements");
    app.add_option("--dtype", dtype, "float16, bfloat16, ... of the measurements");
    app.add_option("--card", card, "measurements of this card only")->needs(train);
    app.add_option("--folds", folds, "parts in which schemes are held out")
        ->check(whole_number(2))
        ->needs(train)
        ->capture_default_str();
    app.add_option("--seed", seed, "of the parts")
        ->check(whole_number(0))
        ->needs(train)
        ->capture_default_str();
    app.add_flag("--json", json, "print JSON");
  }

  tuning::Selection selection() const {
    tuning::Selection selection;
    if (!encoder.empty()) selection.model = encoder;
    if (!mask.empty()) selection.mask = mask;
    if (!dtype.empty()) selection.dtype = dtype;
    if (batch > 0) selection.batch = batch;
    if (seq > 0) selection.seq = seq;
    return selection;
  }
};

std::string list_of(const std::vector<tuning::KnownSetting>& known) {
  std::string list;
  for (const tuning::KnownSetting& one : known) list += "\n  " + tuning::printed(one.setting);
  return list;
}

// The setting of a prediction: the one that was selected, or a new one of the same encoder.
Setting chosen_setting(const Regressor& regressor, const PredictFlags& flags) {
  const auto& known = regressor.known();
  std::vector<Setting> selected;
  for (const tuning::KnownSetting& one : known) {
    if (flags.selection().takes(one.setting)) selected.push_back(one.setting);
  }
  if (selected.size() == 1) return selected[0];
  SEQFUSE_CHECK_AS(UsageError, selected.empty(),
                   "predict: {} was trained on several settings; choose one with --batch, --seq, "
                   "--mask, --encoder or --dtype:{}",
                   flags.model, list_of(known));
  Setting setting = known[0].setting;
  for (const tuning::KnownSetting& one : known) {
    const bool same = one.setting.model == setting.model && one.setting.dtype == setting.dtype;
    SEQFUSE_CHECK_AS(UsageError, same,
                     "predict: {} has not seen this setting, and has several encoders to "
                     "take it for; it knows:{}",
                     flags.model, list_of(known));
  }
  const bool whole = flags.batch > 0 && flags.seq > 0 && !flags.mask.empty();
  SEQFUSE_CHECK_AS(UsageError, whole && flags.encoder.empty() && flags.dtype.empty(),
                   "predict: {} has not seen this setting; it knows:{}\n  another one of the same "
                   "encoder needs --batch, --seq and --mask alone",
                   flags.model, list_of(known));
  setting.batch = flags.batch;
  setting.seq = flags.seq;
  setting.mask = flags.mask;
  setting.mask_density = tuning::density_of(flags.mask, flags.seq);
  log::warning("predict", "{} has not seen {}", flags.model, tuning::printed(setting));
  return setting;
}

json setting_json(const Setting& setting) {
  return {{"encoder", setting.model}, {"batch", setting.batch},
          {"seq", setting.seq},       {"mask", setting.mask},
          {"dtype", setting.dtype},   {"mask_density", setting.mask_density}};
}

void predict(const PredictFlags& flags) {
  std::vector<int64_t> numbers;
  for (const std::string& scheme : flags.schemes) numbers.push_back(fusion::read_number(scheme));
  const Regressor regressor = Regressor::load(flags.model);
  const Setting setting = chosen_setting(regressor, flags);
  const double fast_below = regressor.fast_below(setting);
  json results = json::array();
  for (const int64_t number : numbers) {
    fusion::Scheme scheme = fusion::Scheme::from_number(number);
    if (regressor.provenance.legal_forms) scheme = fusion::program_of(scheme);
    const double milliseconds = regressor.predict(setting, scheme);
    const int fast = milliseconds < fast_below ? 1 : 0;
    if (!flags.json) fmt::print("{:.5g} {}\n", milliseconds, fast);
    results.push_back({{"scheme", number},
                       {"predicted_as", scheme.number()},
                       {"milliseconds", milliseconds},
                       {"fast", fast}});
  }
  if (flags.json) {
    const json report = {{"setting", setting_json(setting)},
                         {"fast_below_milliseconds", fast_below},
                         {"predictions", std::move(results)}};
    fmt::print("{}\n", report.dump(1));
  }
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

void print_validation(const char* what, const tuning::Validation& validation,
                      const char* why_none) {
  if (validation.settings.empty()) {
    fmt::print("{}: {}\n", what, why_none);
    return;
  }
  fmt::print("{:<46} {:>7} {:>9} {:>8} {:>8} {:>8}\n", what, "schemes", "Spearman", "top 1",
             "top 5", "top 10");
  for (const tuning::HeldOut& held : validation.settings) {
    fmt::print("{:<46} {:>7} {:>9} {:>8} {:>8} {:>8}\n", tuning::printed(held.setting),
               held.examples,
               std::isnan(held.correlation) ? "-" : fmt::format("{:.3f}", held.correlation),
               percent(held.regret[0]), percent(held.regret[1]), percent(held.regret[2]));
  }
}

json validation_json(const tuning::Validation& validation) {
  json result = json::array();
  for (const tuning::HeldOut& held : validation.settings) {
    json regret;
    for (size_t k = 0; k < tuning::kTopK.size(); ++k)
      regret[std::to_string(tuning::kTopK[k])] = held.regret[k];
    result.push_back({{"setting", setting_json(held.setting)},
                      {"schemes", held.examples},
                      {"spearman", std::isnan(held.correlation) ? json() : json(held.correlation)},
                      {"top_k_regret", std::move(regret)}});
  }
  return result;
}

void train_predictor(const PredictFlags& flags) {
  const auto data =
      tuning::read_training_files(flags.training_files, flags.selection(), flags.card);
  Regressor regressor;
  regressor.fit(data.examples);
  regressor.provenance = {
      .legal_forms = data.legal_forms, .origin = data.origin, .date = tuning::now_as_date()};
  regressor.save(flags.model);
  if (data.of_other_origins > 0) {
    log::warning("predict", "{} measurements of other cards, drivers or versions are left out",
                 data.of_other_origins);
  }
  const auto schemes = tuning::hold_out_schemes(
      data.examples, tuning::BoostingOptions(),
      static_cast<int>(std::min<int64_t>(flags.folds, 1000)), static_cast<uint64_t>(flags.seed));
  const auto settings = tuning::hold_out_settings(data.examples, tuning::BoostingOptions());
  if (flags.json) {
    json known = json::array();
    for (const tuning::KnownSetting& one : regressor.known()) {
      json setting = setting_json(one.setting);
      setting["schemes"] = one.examples;
      setting["fast_below_milliseconds"] = one.median_milliseconds;
      known.push_back(std::move(setting));
    }
    const json report = {{"model", flags.model},
                         {"origin", data.origin ? json(tuning::printed(*data.origin)) : json()},
                         {"settings", std::move(known)},
                         {"held_out_schemes", validation_json(schemes)},
                         {"held_out_settings", validation_json(settings)}};
    fmt::print("{}\n", report.dump(1));
    return;
  }
  fmt::print("{}: {} times of {} setting{}{}\n", flags.model, data.examples.size(),
             regressor.known().size(), regressor.known().size() == 1 ? "" : "s",
             data.origin ? ", " + tuning::printed(*data.origin) : "");
  print_validation("held-out schemes", schemes, "too few schemes to hold some out");
  print_validation("held-out settings", settings, "there is one setting");
  fmt::print(
      "top k: how much slower the best of the k that are predicted fastest is than the best\n");
}

}  // namespace

int cmd_predict(int argc, char** argv) {
  PredictFlags flags;
  CLI::App app(
      "Predicts how long fusion schemes take: milliseconds, and 1 if that is below the\n"
      "median of the measured schemes, else 0. --train learns it from measured ones.",
      "predict");
  flags.add_to(app);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;
  SEQFUSE_CHECK_AS(UsageError, !flags.schemes.empty() || !flags.training_files.empty(),
                   "predict: nothing was given; expected a scheme such as 0100010111011101, or "
                   "--train FILE");
  if (flags.training_files.empty()) {
    predict(flags);
  } else {
    train_predictor(flags);
  }
  return 0;
}

}  // namespace seqfuse::cli
