// Many requests at once: the answers of single requests, whatever the block; users that are not
// known; items that are not wanted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "serving/batch/batch_recommender.h"
#include "serving/batch/popular_items.h"
#include "serving/recommendations.h"
#include "serving/request_window.h"
#include "tests/models/model_fixtures.h"
#include "tests/unit/memory_dataset.h"

namespace seqfuse::serving::batch_recommender_test {
namespace {
using models::hstu::ModelSpec;
using models::hstu::Task;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kUsers = 60, kItems = 60;

// Users of 1 to 30 events, and the last one without any.
std::shared_ptr<const data::MemoryDataset> dataset() {
  std::vector<data::MemoryDataset::User> users;
  Random random(5);
  for (int64_t u = 0; u < kUsers; ++u) {
    data::MemoryDataset::User user{.context = {u % 4 + 1}};
    for (int64_t i = 0; i < (u + 1 == kUsers ? 0 : 1 + u * 7 % 30); ++i) {
      user.items.push_back(1 + static_cast<int64_t>(random.below(kItems)));
      user.actions.push_back(static_cast<int64_t>(random.below(2)));
      user.timestamps.push_back(1000 * i + static_cast<int64_t>(random.below(1000)));
    }
    users.push_back(std::move(user));
  }
  users[0].items[0] = kItems;  // so that there are so many
  return std::make_shared<const data::MemoryDataset>(
      std::move(users), std::vector<data::ContextFeature>{{"group", 5}});
}

// In float64, so that no two scores are equal but for rounding. damaged: the start of the name of the
// parameters that are not numbers.
TrainedRun random_run(Task task, const std::string& architecture, const std::string& damaged = "") {
  TrainedRun run;
  run.dataset = dataset();
  run.vocabulary = run.dataset;
  run.typical = data::TypicalEvents::of(*run.dataset);
  config::Config config = models::hstu::small_config(architecture);
  config.ranking.prediction_head_arch = {6, 2};
  config.ranking.num_tasks = 1;
  const ModelSpec spec = ModelSpec::make(task, config, run.dataset->manifest());
  const auto model = models::hstu::make_task_model(spec, 1, torch::kDouble);
  models::hstu::randomize(*model);
  for (const auto& parameter : model->named_parameters()) {
    if (damaged.empty() || !parameter.key().starts_with(damaged)) continue;
    parameter.value().detach().fill_(std::numeric_limits<double>::quiet_NaN());
  }
  run.predictor = std::make_shared<const Predictor>(model, at::kCPU);
  return run;
}

UserRequest of_user(const std::string& user) {
  return {.user = user, .request = {.user = user}, .where = "users.txt:" + user};
}

// Every third user by a history of their own, of more events than a model reads.
std::vector<UserRequest> requests(Task task) {
  std::vector<UserRequest> all;
  for (int64_t u = 0; u + 1 < kUsers; ++u) {
    all.push_back(of_user(std::to_string(u)));
    Request& request = all.back().request;
    if (u % 3 == 0) {
      request.user.reset();
      request.items.emplace();
      for (int64_t i = 0; i < 1 + u % 17; ++i) {
        request.items->push_back(std::to_string(1 + (u * 11 + i * 5) % kItems));
      }
    }
    if (task == Task::retrieval) continue;
    request.candidates.emplace();
    for (int64_t i = 0; i < 1 + u % 9; ++i) {
      request.candidates->push_back(std::to_string(1 + (u + i * i) % kItems));
    }
  }
  return all;
}

std::vector<UserItems> in_blocks(const TrainedRun& run, const BatchOptions& options,
                                 const std::vector<UserRequest>& requests, int64_t size) {
  const BatchRecommender recommender(run, options);
  std::vector<UserItems> answers;
  for (int64_t begin = 0; begin < std::ssize(requests); begin += size) {
    const auto block =
        std::span(requests).subspan(begin, std::min(size, std::ssize(requests) - begin));
    AnsweredBlock answered = recommender.recommend(block);
    std::move(answered.users.begin(), answered.users.end(), std::back_inserter(answers));
  }
  return answers;
}

void expect_single_answers(Task task, const std::string& architecture) {
  const TrainedRun run = random_run(task, architecture);
  const std::vector<UserRequest> all = requests(task);
  const BatchOptions options{.top_k = 7, .exclude_seen = task == Task::retrieval};
  for (const int64_t size : {int64_t{1}, int64_t{7}, kUsers}) {
    const auto answers = in_blocks(run, options, all, size);
    ASSERT_EQ(answers.size(), all.size());
    for (size_t u = 0; u < all.size(); ++u) {
      SCOPED_TRACE(testing::Message() << "user " << all[u].user << ", blocks of " << size);
      const RequestWindow window =
          request_window(run.lookup(), run.predictor->spec(), all[u].request);
      const auto single = task == Task::retrieval
                              ? retrieve(*run.predictor, window, 7, /*include_seen=*/false)
                              : rank(*run.predictor, window, {}, 7);
      EXPECT_EQ(answers[u].user, all[u].user);
      ASSERT_EQ(answers[u].items.size(), single.size());
      for (size_t i = 0; i < single.size(); ++i) {
        EXPECT_EQ(answers[u].items[i], single[i].item);
        EXPECT_NEAR(answers[u].scores[i], single[i].scores.front().second, 1e-9);
      }
    }
  }
}

TEST(BatchRecommender, GivesWhatSingleRequestsGiveWhateverTheBlock) {
  expect_single_answers(Task::retrieval, "hstu");
  expect_single_answers(Task::retrieval, "hstu_research");
  expect_single_answers(Task::ranking, "hstu");
}

TEST(BatchRecommender, ABlockOfSeveralPassesIsAnsweredInOrder) {
  for (const Task task : {Task::retrieval, Task::ranking}) {
    const TrainedRun run = random_run(task, "hstu");
    const std::vector<UserRequest> once = requests(task);
    std::vector<UserRequest> many;
    for (int i = 0; i < 10; ++i) many.insert(many.end(), once.begin(), once.end());
    const BatchOptions options{.top_k = 5, .exclude_seen = false};
    const auto expected = in_blocks(run, options, once, std::ssize(once));
    const auto answers = in_blocks(run, options, many, std::ssize(many));  // 590: three passes
    ASSERT_EQ(answers.size(), many.size());
    for (size_t u = 0; u < many.size(); ++u) {
      EXPECT_EQ(answers[u].user, many[u].user);
      EXPECT_EQ(answers[u].items, expected[u % once.size()].items) << u;
    }
  }
}

TEST(BatchRecommender, RecommendsNoneButAllowedItems) {
  const TrainedRun run = random_run(Task::retrieval, "hstu");
  const std::vector<int64_t> allowed = {3, 17, 18, 40};
  for (const bool exclude_seen : {false, true}) {
    const auto answers =
        in_blocks(run, {.top_k = 10, .allowed = allowed, .exclude_seen = exclude_seen},
                  requests(Task::retrieval), kUsers);
    for (const UserItems& answer : answers) {
      std::vector<int64_t> items = answer.items;
      std::sort(items.begin(), items.end());
      EXPECT_TRUE(std::includes(allowed.begin(), allowed.end(), items.begin(), items.end()));
      if (!exclude_seen) {
        EXPECT_EQ(items, allowed);
      }
    }
  }
}

TEST(BatchRecommender, UnwantedCandidatesAreNotRanked) {
  const TrainedRun run = random_run(Task::ranking, "hstu");
  UserRequest request{
      .user = "x",
      .request = {.items = Texts{"4", "5"}, .candidates = Texts{"4", "7", "9", "4"}},
      .where = ""};
  const auto items = [&](const BatchOptions& options) {
    auto answer = in_blocks(run, options, {request}, 1)[0].items;
    std::sort(answer.begin(), answer.end());
    return answer;
  };
  EXPECT_THAT(items({.exclude_seen = false}), ElementsAre(4, 4, 7, 9));
  EXPECT_THAT(items({.exclude_seen = true}), ElementsAre(7, 9));
  EXPECT_THAT(items({.allowed = {4, 7, 8}, .exclude_seen = true}), ElementsAre(7));
  // Two users' remaining items do not mix, even if one has none left.
  UserRequest other = request;
  other.request.candidates = Texts{"5"};
  const BatchRecommender recommender(run, {.exclude_seen = true});
  const AnsweredBlock both = recommender.recommend(std::vector{other, request});
  EXPECT_THAT(both.users[0].items, IsEmpty());
  EXPECT_EQ(both.users[1].items.size(), 2U);
  EXPECT_EQ(both.report.counts.without_items, 1);
  other.request.candidates = Texts();
  const AnsweredBlock none = recommender.recommend(std::vector{other});
  EXPECT_THAT(none.users[0].items, IsEmpty());
  EXPECT_EQ(none.report.counts.without_items, 1);
  other.request.candidates.reset();
  try {
    recommender.recommend(std::vector{other});
    FAIL() << "no candidates";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a column 'candidates'"));
  }
}

TEST(BatchRecommender, ColdUsersAreRefusedSkippedOrGetPopularItems) {
  const TrainedRun run = random_run(Task::retrieval, "hstu");
  const std::string empty = std::to_string(kUsers - 1);
  for (const UserRequest& cold :
       {of_user("9999"), of_user(empty),
        UserRequest{.user = "new", .request = {.items = Texts()}, .where = ""},
        UserRequest{.user = "new", .request = {.items = Texts{"777"}}, .where = ""}}) {
    const std::vector<UserRequest> two = {of_user("3"), cold};
    BatchOptions options{.top_k = 3, .skip_unknown = true};
    try {
      in_blocks(run, options, two, 2);
      ADD_FAILURE() << "a cold user";
    } catch (const Error& error) {
      EXPECT_EQ(dynamic_cast<const DataError*>(&error) != nullptr, !cold.where.empty());
      EXPECT_THAT(error.what(), HasSubstr("--cold-users skip"));
      EXPECT_THAT(error.what(), HasSubstr(cold.where));
    }
    options.cold_users = ColdUsers::skip;
    const AnsweredBlock skipped = BatchRecommender(run, options).recommend(two);
    EXPECT_EQ(skipped.users[0].items.size(), 3U);
    EXPECT_THAT(skipped.users[1].items, IsEmpty());
    const BatchCounts& counts = skipped.report.counts;
    EXPECT_EQ(counts.cold, 1);
    EXPECT_EQ(counts.first_cold, cold.user);
    EXPECT_EQ(counts.without_items, 0);
    EXPECT_EQ(counts.users, 2);
    EXPECT_EQ(counts.answered, 1);
    EXPECT_EQ(counts.rows, 3);

    options.cold_users = ColdUsers::popularity;
    const std::vector<int64_t> popular = popular_items(*run.dataset);
    std::vector<UserItems> answers = in_blocks(run, options, two, 2);
    EXPECT_EQ(answers[1].items, (std::vector(popular.begin(), popular.begin() + 3)));
    EXPECT_THAT(answers[1].scores, IsEmpty());
    EXPECT_EQ(answers[0].scores.size(), 3U);
    options.allowed = {std::min(popular[1], popular[4]), std::max(popular[1], popular[4])};
    answers = in_blocks(run, options, two, 2);
    EXPECT_THAT(answers[1].items, ElementsAre(popular[1], popular[4]));
  }
}

TEST(BatchRecommender, ColdUsersOfARankingRunGetTheirCandidatesByPopularity) {
  const TrainedRun run = random_run(Task::ranking, "hstu");
  const std::vector<int64_t> popular = popular_items(*run.dataset);
  UserRequest cold = of_user("9999");
  cold.request.candidates = Texts{std::to_string(popular[9]), std::to_string(popular[2])};
  const auto answers =
      in_blocks(run, {.exclude_seen = false, .cold_users = ColdUsers::popularity}, {cold}, 1);
  EXPECT_THAT(answers[0].items, ElementsAre(popular[2], popular[9]));
  // Without events, but with context and candidates there is something to read.
  cold.request = {.items = Texts(), .candidates = Texts{"1", "2"}};
  EXPECT_EQ(in_blocks(run, {}, {cold}, 1)[0].scores.size(), 2U);
}

TEST(PopularItems, AreThoseOfMostEventsAndThenTheLower) {
  // Items 1 to 4: 3, 2, 1, 1 events; lengths of_lengths: 1..n.
  const auto users = data::MemoryDataset::of_lengths({1, 2, 4});
  EXPECT_THAT(popular_items(users), ElementsAre(1, 2, 3, 4));
  std::vector<data::MemoryDataset::User> reversed(1);
  reversed[0].items = {3, 3, 2, 4};
  EXPECT_THAT(popular_items(data::MemoryDataset(std::move(reversed))), ElementsAre(3, 2, 4, 1));
}

TEST(BatchRecommender, NamesTheFirstWrongRequestOfABlock) {
  const TrainedRun run = random_run(Task::retrieval, "hstu");
  std::vector<UserRequest> all = requests(Task::retrieval);
  all[50].request = {.items = Texts{"1", "888"}};
  all[40].request = {.items = Texts{"999"}};
  try {
    in_blocks(run, {}, all, kUsers);
    FAIL() << "unknown items";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("users.txt:40: item '999' is not among"));
  }
  const BatchRecommender recommender(run, {.skip_unknown = true, .cold_users = ColdUsers::skip});
  const BatchCounts counts = recommender.recommend(all).report.counts;
  EXPECT_EQ(counts.unknown, 1);  // the other user has no other item: cold
  EXPECT_EQ(counts.cold, 1);
  EXPECT_THAT(counts.first_unknown, HasSubstr("user '50'"));
}

TEST(BatchRecommender, TellsEachWarningOnce) {
  const TrainedRun run = random_run(Task::retrieval, "hstu");
  const BatchRecommender recommender(run, {});
  BatchReport total;
  for (int block = 0; block < 2; ++block) {  // 20 histories have no actions
    total.add(recommender.recommend(requests(Task::retrieval)).report);
  }
  EXPECT_THAT(total.warnings, ElementsAre(HasSubstr("the history has none (--actions)")));
}

TEST(BatchRecommender, RefusesWeightsThatAreNotNumbers) {
  for (const auto& [task, damaged, message] :
       std::vector<std::tuple<Task, std::string, std::string>>{
           {Task::retrieval, "tables.item", "vectors of items have values that are not finite"},
           {Task::retrieval, "encoder", "vectors of users are not finite"},
           {Task::ranking, "head", "scores of candidates are not finite"}}) {
    try {
      in_blocks(random_run(task, "hstu", damaged), {}, requests(task), kUsers);
      ADD_FAILURE() << damaged;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(message), HasSubstr("another --checkpoint")));
    }
  }
}

TEST(BatchRecommender, AsksWhetherToStopBeforeEachPass) {
  const TrainedRun run = random_run(Task::retrieval, "hstu");
  const BatchRecommender recommender(run, {.stop = [] { return true; }});
  for (const UserItems& answer : recommender.recommend(requests(Task::retrieval)).users) {
    EXPECT_THAT(answer.items, IsEmpty());
  }
}

}  // namespace
}  // namespace seqfuse::serving::batch_recommender_test
