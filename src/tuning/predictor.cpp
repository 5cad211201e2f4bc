#include "tuning/predictor.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "fusion/legality.h"
#include "tuning/features.h"

namespace seqfuse::tuning {
namespace {

using fusion::Scheme;
using nlohmann::json;

constexpr const char* kFormat = "seqfuse scheme predictor";
constexpr int kFormatVersion = 1;
constexpr double kRidgePenalty = 1;
// From this many examples on, trees alone are better: a sum over settings misses that a scheme gains more in
// one than in another.
constexpr size_t kEnoughForTrees = 500;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return std::midpoint(*std::max_element(values.begin(), middle), *middle);
}

void check_examples(std::span<const Example> examples) {
  SEQFUSE_CHECK_AS(DataError, examples.size() >= 2,
                   "predictor: {} measured scheme{}; expected two or more, some hundred are better",
                   examples.size(), examples.size() == 1 ? "" : "s");
  for (const Example& example : examples) {
    SEQFUSE_CHECK(std::isfinite(example.milliseconds) && example.milliseconds > 0,
                  "predictor: a time of {} ms; expected a finite number above 0",
                  example.milliseconds);
  }
  const double first = examples[0].milliseconds;
  SEQFUSE_CHECK_AS(
      DataError,
      std::any_of(examples.begin(), examples.end(),
                  [&](const Example& example) { return example.milliseconds != first; }),
      "predictor: all {} times are {} ms: there is nothing to learn; measure schemes that differ",
      examples.size(), first);
}

std::vector<KnownSetting> known_settings(std::span<const Example> examples) {
  std::vector<KnownSetting> known;
  std::vector<std::vector<double>> times;
  for (const Example& example : examples) {
    const auto at = std::find_if(known.begin(), known.end(), [&](const KnownSetting& one) {
      return one.setting == example.setting;
    });
    const auto index = static_cast<size_t>(at - known.begin());
    if (at == known.end()) {
      known.push_back({.setting = example.setting});
      times.emplace_back();
    }
    times[index].push_back(example.milliseconds);
  }
  for (size_t i = 0; i < known.size(); ++i) {
    known[i].examples = static_cast<int64_t>(times[i].size());
    known[i].median_milliseconds = median_of(std::move(times[i]));
  }
  return known;
}

const std::vector<Scheme>& legal_programs() {
  static const std::vector<Scheme> all = [] {
    std::vector<Scheme> found;
    for (int64_t number = fusion::kFirstListed; number <= fusion::kLastListed; ++number) {
      const Scheme scheme = Scheme::from_number(number);
      if (fusion::check(scheme).holds()) found.push_back(scheme);
    }
    return found;
  }();
  return all;
}

json to_json(const Setting& s) {
  return {{"model", s.model},   {"hidden", s.hidden},
          {"heads", s.heads},   {"inner", s.inner},
          {"layers", s.layers}, {"batch", s.batch},
          {"seq", s.seq},       {"mask", s.mask},
          {"dtype", s.dtype},   {"mask_density", s.mask_density}};
}

Setting setting_of(const json& j) {
  const auto text = [&](const char* key) { return j.at(key).get<std::string>(); };
  const auto size = [&](const char* key) { return j.at(key).get<int64_t>(); };
  return {.model = text("model"),
          .hidden = size("hidden"),
          .heads = size("heads"),
          .inner = size("inner"),
          .layers = size("layers"),
          .batch = size("batch"),
          .seq = size("seq"),
          .mask = text("mask"),
          .mask_density = j.at("mask_density").get<double>(),
          .dtype = text("dtype")};
}

// A leaf is its value, another node [feature, threshold, left, right].
json to_json(const BoostedTrees::Tree& tree) {
  json nodes = json::array();
  for (const BoostedTrees::Node& node : tree) {
    nodes.push_back(node.feature < 0
                        ? json(node.value)
                        : json::array({node.feature, node.threshold, node.left, node.right}));
  }
  return nodes;
}

BoostedTrees::Tree tree_of(const json& nodes) {
  BoostedTrees::Tree tree;
  for (const json& node : nodes) {
    if (node.is_number()) {
      tree.push_back({.value = node.get<double>()});
      continue;
    }
    tree.push_back({.feature = node.at(0).get<int>(),
                    .threshold = node.at(1).get<double>(),
                    .left = node.at(2).get<int>(),
                    .right = node.at(3).get<int>()});
    SEQFUSE_CHECK(tree.back().feature >= 0, "trees: feature {}", tree.back().feature);
  }
  return tree;
}

}  // namespace

void Regressor::fit(std::span<const Example> examples) {
  check_examples(examples);
  std::vector<double> rows, targets;
  for (const Example& example : examples) {
    append_features(example.setting, example.scheme, rows);
    targets.push_back(std::log(example.milliseconds / rough_milliseconds(example.setting)));
  }
  const FeatureRows features{rows, feature_names().size()};
  if (examples.size() < kEnoughForTrees) {
    ridge_.fit(features, targets, kRidgePenalty);
  } else {
    ridge_ = Ridge(0, std::vector<double>(features.columns));
  }
  for (size_t i = 0; i < targets.size(); ++i) targets[i] -= ridge_.predict(features.row(i));
  trees_.fit(features, targets, options_);
  known_ = known_settings(examples);
}

double Regressor::predict(const Setting& setting, const Scheme& scheme) const {
  SEQFUSE_CHECK(trained(), "predictor: it was not trained");
  std::vector<double> row;
  append_features(setting, scheme, row);
  return std::exp(ridge_.predict(row) + trees_.predict(row)) * rough_milliseconds(setting);
}

std::vector<double> Regressor::predict(const Setting& setting,
                                       std::span<const Scheme> schemes) const {
  std::vector<double> result;
  for (const Scheme& scheme : schemes) result.push_back(predict(setting, scheme));
  return result;
}

double Regressor::fast_below(const Setting& setting) const {
  for (const KnownSetting& known : known_) {
    if (known.setting == setting) return known.median_milliseconds;
  }
  return median_of(predict(setting, legal_programs()));
}

void Regressor::save(const std::filesystem::path& file) const {
  SEQFUSE_CHECK(trained(), "predictor: it was not trained");
  json settings = json::array(), trees = json::array(), names = json::array();
  for (const KnownSetting& known : known_) {
    json one = to_json(known.setting);
    one["examples"] = known.examples;
    one["median_milliseconds"] = known.median_milliseconds;
    settings.push_back(std::move(one));
  }
  for (const BoostedTrees::Tree& tree : trees_.trees()) trees.push_back(to_json(tree));
  for (const char* name : feature_names()) names.push_back(name);
  json model = {{"format", kFormat},
                {"format_version", kFormatVersion},
                {"legal_forms", provenance.legal_forms},
                {"date", provenance.date},
                {"settings", std::move(settings)},
                {"features", std::move(names)},
                {"intercept", ridge_.intercept()},
                {"weights", ridge_.weights()},
                {"base", trees_.base()},
                {"trees", std::move(trees)}};
  if (provenance.origin) {
    model["origin"] = {{"card", provenance.origin->card},
                       {"driver", provenance.origin->driver},
                       {"version", provenance.origin->version}};
  }
  write_file_atomically(file, model.dump() + "\n");
}

Regressor Regressor::load(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  const json model = json::parse(text, nullptr, /*allow_exceptions=*/false);
  SEQFUSE_CHECK_AS(DataError, model.is_object() && model.value("format", json()) == json(kFormat),
                   "{}: no predictor; expected a file that `seqfuse predict --train` wrote",
                   file.string());
  try {
    SEQFUSE_CHECK(model.at("format_version") == kFormatVersion, "its format is {}; expected {}",
                  model.at("format_version").dump(), kFormatVersion);
    json names = json::array();
    for (const char* name : feature_names()) names.push_back(name);
    SEQFUSE_CHECK(model.at("features") == names, "it was trained on other features");
    std::vector<BoostedTrees::Tree> trees;
    for (const json& tree : model.at("trees")) trees.push_back(tree_of(tree));
    Regressor result;
    result.ridge_ =
        Ridge(model.at("intercept").get<double>(), model.at("weights").get<std::vector<double>>());
    SEQFUSE_CHECK(result.ridge_.weights().size() == feature_names().size(),
                  "it has {} weights; expected {}", result.ridge_.weights().size(),
                  feature_names().size());
    result.trees_ =
        BoostedTrees(feature_names().size(), model.at("base").get<double>(), std::move(trees));
    for (const json& one : model.at("settings")) {
      const Setting setting = setting_of(one);
      check(setting);
      result.known_.push_back({.setting = setting,
                               .examples = one.at("examples").get<int64_t>(),
                               .median_milliseconds = one.at("median_milliseconds").get<double>()});
    }
    SEQFUSE_CHECK(result.trained(), "it has no setting");
    result.provenance.legal_forms = model.at("legal_forms").get<bool>();
    result.provenance.date = model.at("date").get<std::string>();
    if (const auto origin = model.find("origin"); origin != model.end()) {
      result.provenance.origin = Origin{.card = origin->at("card").get<std::string>(),
                                        .driver = origin->at("driver").get<std::string>(),
                                        .version = origin->at("version").get<std::string>()};
    }
    return result;
  } catch (const std::exception& error) {  // of JSON or of the checks above
    throw_error<DataError>("{}: a damaged predictor: {}; train it again", file.string(),
                           error.what());
  }
}

}  // namespace seqfuse::tuning
