#include "data/synthesize/generated_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace seqfuse::data::data_generated_test {
namespace {

config::BenchmarkDatasetArgs arguments() {
  config::BenchmarkDatasetArgs args;
  config::FeatureArgs events{
      .feature_names = {"item", "action"}, .max_sequence_length = 100, .is_jagged = true};
  events.seqlen_dist = {.dist_type = config::Distribution::zipf, .low = 3, .alpha = 1.2};
  events.value_dists["item"] = {.dist_type = config::Distribution::zipf, .alpha = 1.2};
  args.feature_args = {events, {.feature_names = {"country"}, .max_sequence_length = 1}};
  config::EmbeddingArgs items, actions, countries;
  items.feature_names = {"item"};
  items.item_vocab_size_or_capacity = 1000;
  actions.feature_names = {"action"};
  actions.item_vocab_size_or_capacity = 8;
  countries.feature_names = {"country"};
  countries.item_vocab_size_or_capacity = 5;
  args.embedding_args = {items, actions, countries};
  args.item_feature_name = "item";
  args.action_feature_name = "action";
  args.contextual_feature_names = {"country"};
  args.num_generated_batches = 20;
  return args;
}

// As in published benchmarks: 100 action ids for eight tasks.
TEST(GeneratedDataset, AnActionHasABitForEachTask) {
  config::BenchmarkDatasetArgs args = arguments();
  std::get<config::EmbeddingArgs>(args.embedding_args[1]).item_vocab_size_or_capacity = 100;
  EXPECT_EQ(generate_dataset(args, 10, 1)->manifest().action_names.size(), 7U);
  const auto dataset = generate_dataset(args, 10, 1, 8);
  EXPECT_EQ(dataset->manifest().num_actions, 100);
  ASSERT_EQ(dataset->manifest().action_names.size(), 8U);
  EXPECT_EQ(dataset->manifest().action_names[7], "bit_7");
  for (const int64_t action : dataset->user(0).actions) EXPECT_LT(action, 100);
}

TEST(GeneratedDataset, IsWhatTheArgumentsSay) {
  const auto dataset = generate_dataset(arguments(), 10, 1);
  ASSERT_EQ(dataset->num_users(), 200);
  EXPECT_EQ(dataset->num_items(), 999);
  EXPECT_EQ(dataset->manifest().num_actions, 8);
  EXPECT_EQ(dataset->manifest().context[0].vocab_size, 5);
  std::map<int64_t, int64_t> count_of_item;
  int64_t shortest = 1000, longest = 0, events = 0;
  for (int64_t row = 0; row < 200; ++row) {
    const UserSequence user = dataset->user(row);
    ASSERT_EQ(user.items.size(), user.actions.size());
    shortest = std::min(shortest, std::ssize(user.items));
    longest = std::max(longest, std::ssize(user.items));
    events += std::ssize(user.items);
    for (const int64_t item : user.items) {
      ASSERT_TRUE(item >= 1 && item < 1000);
      ++count_of_item[item];
    }
    for (const int64_t action : user.actions) ASSERT_TRUE(action >= 0 && action < 8);
    ASSERT_TRUE(dataset->context(0, row) >= 0 && dataset->context(0, row) < 5);
  }
  EXPECT_EQ(shortest, 3);
  EXPECT_LE(longest, 100);
  EXPECT_EQ(events, dataset->manifest().num_events);
  EXPECT_GT(count_of_item[1], 3 * count_of_item[10]);  // Zipf: the first is the most popular
}

TEST(GeneratedDataset, DependsOnTheSeedAlone) {
  const auto a = generate_dataset(arguments(), 10, 1), b = generate_dataset(arguments(), 10, 1),
             c = generate_dataset(arguments(), 10, 2);
  EXPECT_TRUE(std::ranges::equal(a->user(7).items, b->user(7).items));
  EXPECT_NE(a->manifest().num_events, c->manifest().num_events);
}

TEST(GeneratedDataset, WindowsHaveTheLongestLength) {
  config::BenchmarkDatasetArgs args = arguments();
  args.max_num_candidates = 10;
  const config::DatasetArgs dataset = dataset_args_of(args);
  EXPECT_EQ(dataset.max_history_seqlen, 90);
  EXPECT_EQ(dataset.max_num_candidates, 10);
}

TEST(GeneratedDataset, ArgumentsThatDoNotFitAreRefused) {
  config::BenchmarkDatasetArgs apart = arguments();
  apart.feature_args[0].feature_names = {"item"};
  apart.feature_args.push_back({.feature_names = {"action"}, .max_sequence_length = 100});
  EXPECT_THAT([&] { generate_dataset(apart, 10, 1); },
              testing::ThrowsMessage<UsageError>(
                  testing::HasSubstr("item and action are in different FeatureArgs")));
  config::BenchmarkDatasetArgs wide = arguments();
  wide.feature_args[1].max_sequence_length = 2;
  EXPECT_THAT([&] { generate_dataset(wide, 10, 1); },
              testing::ThrowsMessage<UsageError>(
                  testing::HasSubstr("country has a max_sequence_length of 2: expected 1")));
}

}  // namespace
}  // namespace seqfuse::data::data_generated_test
