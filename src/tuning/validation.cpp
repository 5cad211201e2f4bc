#include "tuning/validation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/random.h"

namespace seqfuse::tuning {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<double> ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i)
      result[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return result;
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// part_of[i]: the part in which example i is held out, below `parts`.
std::vector<double> predict_parts(std::span<const Example> examples, const BoostingOptions& options,
                                  std::span<const size_t> part_of, size_t parts) {
  std::vector<double> predicted(examples.size(), kNone);
  parallel_tasks(static_cast<int64_t>(parts), [&](int64_t task) {
    const auto part = static_cast<size_t>(task);
    std::vector<Example> rest;
    for (size_t i = 0; i < examples.size(); ++i) {
      if (part_of[i] != part) rest.push_back(examples[i]);
    }
    Regressor regressor(options);
    try {
      regressor.fit(rest);
    } catch (const DataError&) {
      return;  // too few, or all equal: nothing predicts this part
    }
    for (size_t i = 0; i < examples.size(); ++i) {
      if (part_of[i] == part)
        predicted[i] = regressor.predict(examples[i].setting, examples[i].scheme);
    }
  });
  return predicted;
}

std::vector<Setting> settings_of(std::span<const Example> examples) {
  std::vector<Setting> settings;
  for (const Example& example : examples) {
    if (std::find(settings.begin(), settings.end(), example.setting) == settings.end())
      settings.push_back(example.setting);
  }
  return settings;
}

Validation summarised(std::span<const Example> examples, std::vector<double> predicted) {
  Validation result;
  for (const Setting& setting : settings_of(examples)) {
    std::vector<double> measured, expected;
    for (size_t i = 0; i < examples.size(); ++i) {
      if (!(examples[i].setting == setting) || std::isnan(predicted[i])) continue;
      measured.push_back(examples[i].milliseconds);
      expected.push_back(predicted[i]);
    }
    if (measured.empty()) continue;
    HeldOut held{.setting = setting,
                 .examples = static_cast<int64_t>(measured.size()),
                 .correlation = rank_correlation(measured, expected)};
    for (size_t k = 0; k < kTopK.size(); ++k)
      held.regret[k] = top_k_regret(measured, expected, kTopK[k]);
    result.settings.push_back(std::move(held));
  }
  result.predicted = std::move(predicted);
  return result;
}

}  // namespace

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  SEQFUSE_CHECK(a.size() == b.size(), "rank correlation of {} and {} values", a.size(), b.size());
  if (a.size() < 2) return kNone;
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mx = mean_of(x), my = mean_of(y);
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
  }
  return xx == 0 || yy == 0 ? kNone : xy / std::sqrt(xx * yy);
}

double top_k_regret(std::span<const double> measured, std::span<const double> predicted, size_t k) {
  SEQFUSE_CHECK(measured.size() == predicted.size() && !measured.empty() && k > 0,
                "regret of {} of {} and {} values", k, measured.size(), predicted.size());
  std::vector<size_t> order(measured.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return predicted[a] < predicted[b]; });
  double best_chosen = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(k, order.size()); ++i)
    best_chosen = std::min(best_chosen, measured[order[i]]);
  return best_chosen / *std::min_element(measured.begin(), measured.end()) - 1;
}

Validation hold_out_schemes(std::span<const Example> examples, const BoostingOptions& options,
                            int folds, uint64_t seed) {
  std::map<int64_t, size_t> index_of_scheme;
  for (const Example& example : examples)
    index_of_scheme.try_emplace(example.scheme.number(), index_of_scheme.size());
  const size_t schemes = index_of_scheme.size();
  const size_t parts = schemes < 3 ? 0 : std::min(static_cast<size_t>(folds), schemes);
  std::vector<size_t> shuffled(schemes), part_of;
  std::iota(shuffled.begin(), shuffled.end(), size_t{0});
  Random(seed).shuffle(shuffled);
  for (const Example& example : examples) {
    const size_t place = shuffled[index_of_scheme.at(example.scheme.number())];
    part_of.push_back(parts == 0 ? 0 : place % parts);
  }
  return summarised(examples, predict_parts(examples, options, part_of, parts));
}

Validation hold_out_settings(std::span<const Example> examples, const BoostingOptions& options) {
  const std::vector<Setting> settings = settings_of(examples);
  std::vector<size_t> part_of;
  for (const Example& example : examples) {
    part_of.push_back(static_cast<size_t>(
        std::find(settings.begin(), settings.end(), example.setting) - settings.begin()));
  }
  const size_t parts = settings.size() < 2 ? 0 : settings.size();
  return summarised(examples, predict_parts(examples, options, part_of, parts));
}

}  // namespace seqfuse::tuning
