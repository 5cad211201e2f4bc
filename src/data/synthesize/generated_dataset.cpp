#include "data/synthesize/generated_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace seqfuse::data {
namespace {

using config::BenchmarkDatasetArgs;
using config::FeatureArgs;
using config::RandomDistribution;

// Integers in [low, high) by a distribution.
class Draw {
 public:
  // bound: the largest high that the feature allows.
  Draw(const RandomDistribution& distribution, int64_t least, int64_t bound)
      : distribution_(distribution),
        low_(std::clamp(static_cast<int64_t>(distribution.low), least, bound - 1)),
        high_(
            std::clamp(static_cast<int64_t>(distribution.high.value_or(static_cast<double>(bound))),
                       low_ + 1, bound)) {}

  int64_t operator()(Random& random) const {
    const auto span = static_cast<double>(high_ - low_);
    if (distribution_.dist_type == config::Distribution::uniform)
      return low_ + static_cast<int64_t>(random.unit() * span);
    if (distribution_.dist_type == config::Distribution::zipf)
      return clamped(static_cast<double>(low_) + zipf(random.unit(), span));
    const double value = distribution_.mean + distribution_.std * random.normal();
    return clamped(distribution_.dist_type == config::Distribution::lognormal ? std::exp(value)
                                                                              : value);
  }

 private:
  int64_t clamped(double value) const {
    return std::clamp(static_cast<int64_t>(std::clamp(value, -9e18, 9e18)), low_, high_ - 1);
  }

  // Rank k in [0, count) with probability about (k + 1) ^ -alpha: the inverse of the density's
  // integral.
  double zipf(double u, double count) const {
    const double power = 1 - distribution_.alpha;
    if (std::abs(power) < 1e-9) return std::exp(u * std::log(count + 1)) - 1;
    return std::pow(1 + u * (std::pow(count + 1, power) - 1), 1 / power) - 1;
  }

  RandomDistribution distribution_;
  int64_t low_, high_;
};

const FeatureArgs& feature_of(const BenchmarkDatasetArgs& args, const std::string& name) {
  for (const FeatureArgs& feature : args.feature_args) {
    if (std::ranges::find(feature.feature_names, name) != feature.feature_names.end())
      return feature;
  }
  throw_error<UsageError>("BenchmarkDatasetArgs.feature_args have no feature '{}'", name);
}

int64_t table_size_of(const BenchmarkDatasetArgs& args, const std::string& name) {
  for (const config::TableArgs& table : args.embedding_args) {
    const config::EmbeddingArgs* fixed = std::get_if<config::EmbeddingArgs>(&table);
    const config::DynamicEmbeddingArgs* dynamic = std::get_if<config::DynamicEmbeddingArgs>(&table);
    const auto& names = fixed ? fixed->feature_names : dynamic->feature_names;
    if (std::ranges::find(names, name) == names.end()) continue;
    return fixed ? fixed->item_vocab_size_or_capacity : dynamic->item_vocab_size_or_capacity;
  }
  throw_error<UsageError>("BenchmarkDatasetArgs.embedding_args have no table for '{}'", name);
}

Draw values_of(const BenchmarkDatasetArgs& args, const std::string& name, int64_t least) {
  const FeatureArgs& feature = feature_of(args, name);
  const auto found = feature.value_dists.find(name);
  return {found == feature.value_dists.end() ? RandomDistribution{} : found->second, least,
          std::max(table_size_of(args, name), least + 1)};
}

class GeneratedDataset : public Dataset {
 public:
  GeneratedDataset(const BenchmarkDatasetArgs& args, int64_t users, uint64_t seed,
                   int64_t num_tasks) {
    directory_ = kGeneratedDataset;
    manifest_.dataset_name = kGeneratedDataset;
    manifest_.hash = kGeneratedDataset;
    manifest_.num_users = users;
    manifest_.num_items = table_size_of(args, args.item_feature_name) - 1;
    SEQFUSE_CHECK_AS(UsageError, manifest_.num_items > 0,
                     "the table of {} has {} rows: expected 2 or more", args.item_feature_name,
                     manifest_.num_items + 1);
    Random random(seed);
    draw_sequences(args, random, num_tasks);
    for (const std::string& name : args.contextual_feature_names) {
      SEQFUSE_CHECK_AS(UsageError, feature_of(args, name).max_sequence_length == 1,
                       "the context feature {} has a max_sequence_length of {}: expected 1", name,
                       feature_of(args, name).max_sequence_length);
      const Draw draw = values_of(args, name, 0);
      manifest_.context.push_back({name, table_size_of(args, name)});
      std::vector<int64_t>& values = context_.emplace_back();
      for (int64_t row = 0; row < users; ++row) values.push_back(draw(random));
    }
  }

  UserSequence user(int64_t row) const override {
    const auto begin = static_cast<size_t>(offsets_[row]),
               count = static_cast<size_t>(offsets_[row + 1]) - begin;
    const std::span<const int64_t> items(items_), actions(actions_);
    return {
        items.subspan(begin, count), actions.empty() ? actions : actions.subspan(begin, count), {}};
  }
  int64_t context(int64_t feature, int64_t row) const override {
    return context_.at(feature).at(row);
  }
  std::string item_id(int64_t item) const override { return std::to_string(item); }
  std::string item_title(int64_t) const override { return ""; }
  std::optional<int64_t> find_item(std::string_view) const override { return std::nullopt; }
  std::string user_id(int64_t row) const override { return std::to_string(row); }
  std::optional<int64_t> find_user(std::string_view) const override { return std::nullopt; }

 private:
  void draw_sequences(const BenchmarkDatasetArgs& args, Random& random, int64_t num_tasks) {
    const FeatureArgs& events = feature_of(args, args.item_feature_name);
    const Draw length(events.seqlen_dist.value_or(RandomDistribution{}), 1,
                      events.max_sequence_length + 1);
    for (int64_t row = 0; row < manifest_.num_users; ++row) {
      offsets_.push_back(offsets_.back() +
                         (events.is_jagged ? length(random) : events.max_sequence_length));
    }
    manifest_.num_events = offsets_.back();
    const Draw item = values_of(args, args.item_feature_name, 1);
    items_.resize(manifest_.num_events);
    for (int64_t& value : items_) value = item(random);
    if (!args.action_feature_name) return;
    SEQFUSE_CHECK_AS(
        UsageError, &feature_of(args, *args.action_feature_name) == &events,
        "{} and {} are in different FeatureArgs: an event has one of each, so list both in one",
        args.item_feature_name, *args.action_feature_name);
    manifest_.action_kind = ActionKind::bits;
    manifest_.num_actions = table_size_of(args, *args.action_feature_name);
    for (int bit = 0; bit < num_tasks || (int64_t{1} << bit) < manifest_.num_actions; ++bit) {
      manifest_.action_names.push_back(fmt::format("bit_{}", bit));
    }
    const Draw action = values_of(args, *args.action_feature_name, 0);
    actions_.resize(manifest_.num_events);
    for (int64_t& value : actions_) value = action(random);
  }

  std::vector<int64_t> offsets_{0}, items_, actions_;
  std::vector<std::vector<int64_t>> context_;
};

}  // namespace

std::shared_ptr<const Dataset> generate_dataset(const BenchmarkDatasetArgs& args,
                                                int64_t batch_size, uint64_t seed,
                                                int64_t num_tasks) {
  return std::make_shared<GeneratedDataset>(args, batch_size * args.num_generated_batches, seed,
                                            num_tasks);
}

config::DatasetArgs dataset_args_of(const BenchmarkDatasetArgs& args) {
  config::DatasetArgs dataset;
  dataset.dataset_name = kGeneratedDataset;
  dataset.max_num_candidates = args.max_num_candidates;
  dataset.max_history_seqlen =
      feature_of(args, args.item_feature_name).max_sequence_length - args.max_num_candidates;
  dataset.train_fraction = 0.9;
  return dataset;
}

}  // namespace seqfuse::data
