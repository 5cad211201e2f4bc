// The window that a model reads for a request: events, times, request time, context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/dataset/typical_events.h"
#include "data/read/time_format.h"
#include "models/hstu/windows.h"
#include "serving/history.h"
#include "serving/request_window.h"
#include "tests/models/model_fixtures.h"

namespace seqfuse::serving::recommend_window_test {
namespace {
using data::MemoryDataset;
using data::most_common_action;
using data::typical_gap;
using models::hstu::ModelSpec;
using models::hstu::Task;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Values = std::vector<int64_t>;

// Retrieval reads times with hstu_research, actions and context with hstu; ranking is hstu.
ModelSpec spec_of(const data::Dataset& dataset, const std::string& architecture,
                  Task task = Task::retrieval, int64_t max_history = 12) {
  config::Config config = models::hstu::small_config(architecture);
  config.dataset.max_history_seqlen = max_history;
  config.ranking.num_tasks = 1;
  config.ranking.prediction_head_arch = {6, 4};
  return ModelSpec::make(task, config, dataset.manifest());
}

// Two users with items 1, 2, ... and actions 0, 1, 0, ...; user 0 at times 0, 10, ..., user 1 at 1,
// 11, ...; their feature user_id is 1 and 2.
MemoryDataset two_users() {
  return MemoryDataset::of_lengths({5, 3});
}

std::string error_of(const data::Dataset& dataset, const ModelSpec& spec, const Request& request,
                     bool skip_unknown = false) {
  try {
    request_window(dataset, spec, request, skip_unknown);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(RequestWindow, HasTheNewestEventsAndARequestOneGapLater) {
  const auto dataset = two_users();
  const RequestWindow window = request_window(
      dataset, spec_of(dataset, "hstu_research", Task::retrieval, 2), {.user = " 0 "});
  EXPECT_EQ(window.batch.users, (Values{0}));
  EXPECT_EQ(window.batch.offsets, (Values{0, 3}));
  EXPECT_EQ(window.batch.items, (Values{4, 5, 0}));  // 0: the item to be found
  EXPECT_EQ(window.batch.actions, (Values{1, 0, 0}));
  EXPECT_EQ(window.batch.timestamps, (Values{30, 40, 50}));
  EXPECT_EQ(window.batch.num_candidates, (Values{1}));
  EXPECT_THAT(window.batch.context, ElementsAre(Values{1}));
  EXPECT_EQ(window.seen, (Values{1, 2, 3, 4, 5}));
  EXPECT_THAT(window.warnings, IsEmpty());
}

TEST(RequestWindow, IsEqualForEqualEvents) {
  const auto dataset = two_users();
  for (const char* architecture : {"hstu", "hstu_research"}) {
    const ModelSpec spec = spec_of(dataset, architecture, Task::retrieval, 3);
    for (const auto& time : {std::optional<std::string>(), std::optional<std::string>("77")}) {
      const RequestWindow user = request_window(dataset, spec, {.user = "0", .request_time = time});
      const RequestWindow history =
          request_window(dataset, spec,
                         {.items = Texts{"1", "2", "3", "4", "5"},
                          .actions = Texts{"0", "1", "0", "1", "0"},
                          .timestamps = Texts{"0", "10", "20", "30", "40"},
                          .context = {{"user_id", "1"}},
                          .request_time = time});
      EXPECT_EQ(history.batch.items, user.batch.items);
      EXPECT_EQ(history.batch.actions, user.batch.actions);
      EXPECT_EQ(history.batch.timestamps, user.batch.timestamps);
      EXPECT_EQ(history.batch.offsets, user.batch.offsets);
      EXPECT_EQ(history.batch.context, user.batch.context);
      EXPECT_EQ(history.seen, user.seen);
      const models::hstu::Windows read =
          models::hstu::make_windows(history.batch, models::hstu::Reading::query, torch::kCPU);
      EXPECT_EQ(read.max_history, 3);
      // hstu reads no times, so the typical gap is not computed.
      const int64_t by_default = spec.reads_times() ? 50 : 40;
      EXPECT_EQ(read.request_times.item<int64_t>(), time ? 77 : by_default);
    }
  }
}

TEST(RequestWindow, NeedsADatasetForAUserAlone) {
  const auto dataset = two_users();
  const ModelSpec spec = spec_of(dataset, "hstu_research");
  const Lookup lookup(dataset, nullptr, {.gap = 7, .action = 1});
  const RequestWindow window = request_window(lookup, spec, {.items = Texts{"3", "1"}});
  EXPECT_EQ(window.batch.timestamps, (Values{0, 7, 14}));
  try {
    request_window(lookup, spec, {.user = "0"});
    FAIL() << "a user without a dataset";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--data"));
    EXPECT_THAT(error.what(), HasSubstr("--history"));
  }
}

TEST(RequestWindow, TimesThatAreNotGivenAreATypicalGapApart) {
  const auto dataset = two_users();
  const ModelSpec spec = spec_of(dataset, "hstu_research");
  const Request request{.items = Texts{"3", "1", "2"}};
  const RequestWindow window = request_window(dataset, spec, request);
  EXPECT_EQ(window.batch.items, (Values{3, 1, 2, 0}));
  EXPECT_EQ(window.batch.timestamps, (Values{0, 10, 20, 30}));
  EXPECT_EQ(window.batch.users, (Values{-1}));
  EXPECT_THAT(window.batch.context, ElementsAre(Values{0}));
  EXPECT_THAT(window.warnings,
              ElementsAre(testing::AllOf(HasSubstr("(--timestamps)"), HasSubstr(" 10 apart"))));
  const RequestWindow later =
      request_window(dataset, spec, {.items = request.items, .request_time = "1000"});
  EXPECT_EQ(later.batch.timestamps, (Values{970, 980, 990, 1000}));
}

TEST(RequestWindow, ActionsThatAreNotGivenAreTheMostCommon) {
  const auto dataset = MemoryDataset({{.items = {1, 2, 3}, .actions = {2, 1, 2}}});
  const Request request{.items = Texts{"3", "1"}};
  const RequestWindow window = request_window(dataset, spec_of(dataset, "hstu"), request);
  EXPECT_EQ(window.batch.actions, (Values{2, 2, 0}));
  EXPECT_TRUE(window.batch.timestamps.empty());
  EXPECT_THAT(window.warnings,
              ElementsAre(testing::AllOf(HasSubstr("(--actions)"), HasSubstr("'2'"))));
}

TEST(RequestWindow, WarnsOfWhatIsGivenAndNotRead) {
  const auto dataset = two_users();
  const Request request{.items = Texts{"1"},
                        .actions = Texts{"1"},
                        .timestamps = Texts{"5"},
                        .context = {{"user_id", "2"}}};
  const RequestWindow research =
      request_window(dataset, spec_of(dataset, "hstu_research"), request);
  EXPECT_THAT(research.warnings,
              ElementsAre(HasSubstr("reads no actions"), HasSubstr("reads no context")));
  const RequestWindow hstu = request_window(dataset, spec_of(dataset, "hstu"), request);
  EXPECT_THAT(hstu.warnings, ElementsAre(HasSubstr("reads no times")));
  EXPECT_THAT(hstu.batch.context, ElementsAre(Values{2}));
}

TEST(RequestWindow, CandidatesComeAtTheTimeOfTheRequest) {
  const auto dataset = two_users();
  const ModelSpec spec = spec_of(dataset, "hstu", Task::ranking);
  const RequestWindow window = request_window(
      dataset, spec, {.user = "1", .request_time = "21", .candidates = Texts{"5", "4"}});
  EXPECT_EQ(window.batch.items, (Values{1, 2, 3, 5, 4}));
  EXPECT_EQ(window.batch.timestamps, (Values{1, 11, 21, 21, 21}));
  EXPECT_EQ(window.batch.actions, (Values{0, 1, 0, 0, 0}));
  EXPECT_EQ(window.batch.num_candidates, (Values{2}));
  EXPECT_EQ(window.candidates, (Values{5, 4}));
}

TEST(RequestWindow, UnknownItemsAreLeftOutOnRequest) {
  const auto dataset = two_users();
  const Request request{.items = Texts{"99", "1", "98", "2"},
                        .actions = Texts{"1", "0", "1", "1"},
                        .timestamps = Texts{"1", "2", "3", "4"},
                        .candidates = Texts{"97", "4"}};
  const ModelSpec spec = spec_of(dataset, "hstu", Task::ranking);
  EXPECT_THAT(error_of(dataset, spec, request), HasSubstr("'99' is not among the 5 items"));
  EXPECT_THAT(error_of(dataset, spec, request), HasSubstr("--skip-unknown"));
  const RequestWindow window = request_window(dataset, spec, request, true);
  EXPECT_EQ(window.batch.items, (Values{1, 2, 4}));
  EXPECT_EQ(window.batch.actions, (Values{0, 1, 0}));
  EXPECT_EQ(window.batch.timestamps, (Values{2, 4, 4}));
  EXPECT_EQ(window.seen, (Values{1, 2}));
  EXPECT_THAT(window.warnings.at(0),
              HasSubstr("left out: 2 of the history ('99', '98'), 1 of the candidates ('97')"));
  Request unknown = request;
  unknown.items = Texts{"91", "92", "93", "94", "95", "96"};
  unknown.actions = unknown.timestamps = std::nullopt;
  EXPECT_THAT(error_of(dataset, spec, unknown, true),
              HasSubstr("the dataset has none of the items of the history given: '91', "
                        "'92', '93', '94', '95', ..."));
  unknown.items = Texts{"1"};
  unknown.candidates = Texts{"99"};
  EXPECT_THAT(error_of(dataset, spec, unknown, true),
              HasSubstr("none of the candidates given: '99'"));
}

TEST(RequestWindow, DatesAreInTheUnitOfTheDataset) {
  data::Manifest manifest;
  for (const int64_t units : {int64_t{1}, int64_t{1000}, int64_t{1'000'000'000}}) {
    manifest.time_units_per_second = units;
    EXPECT_EQ(read_time(manifest, " 1970-01-01T00:01:00.5 "), 60 * units + units / 2);
    EXPECT_EQ(read_time(manifest, "70"), 70);
    const data::TimeFormat format("%d.%m.%Y %H:%M");
    EXPECT_EQ(read_time(manifest, "01.01.1970 00:02", &format), 120 * units);
    // Neither a number nor ISO 8601, which could be taken for another time.
    EXPECT_THROW(read_time(manifest, "70", &format), UsageError);
    EXPECT_THROW(read_time(manifest, "1970-01-01", &format), UsageError);
  }
}

TEST(RequestWindow, RefusesRequestsThatDoNotFit) {
  const auto dataset = two_users();
  const ModelSpec spec = spec_of(dataset, "hstu_research");
  const Texts two{"1", "2"};
  for (const auto& [request, message] : std::vector<std::pair<Request, std::string>>{
           {{}, "either --user or --history"},
           {{.user = "0", .items = two}, "either --user or --history"},
           {{.user = ""}, "the user is blank"},
           {{.user = "\t "}, "the user is blank"},
           {{.user = "7"}, "user '7' is not among the 2 users"},
           {{.user = "0", .timestamps = two}, "those of user '0' are in the dataset"},
           {{.user = "0", .actions = two}, "those of user '0' are in the dataset"},
           {{.user = "0", .context = {{"user_id", "1"}}}, "those of user '0' are in the dataset"},
           {{.user = "0", .request_time = "39"}, "39, is before that of the last event, 40"},
           {{.items = Texts{}}, "the history has no items"},
           {{.items = Texts{""}}, "number 1 of the history is blank"},
           {{.items = Texts{"1", " ", "2"}}, "number 2 of the history is blank"},
           {{.items = two, .timestamps = Texts{"1"}}, "timestamps: 1 given for 2 items"},
           {{.items = two, .actions = Texts{"1", "1", "0"}}, "actions: 3 given for 2 items"},
           {{.items = two, .timestamps = Texts{"2", "1"}}, "timestamp 2, '1', is earlier than '2'"},
           {{.items = two, .timestamps = Texts{"1", ""}}, "number 2 of the timestamps is blank"},
           {{.items = two, .timestamps = Texts{"1", "now"}}, "'now' is not a time"},
           {{.items = two, .timestamps = Texts{"1", "2024-05-06"}}, "are plain numbers"},
           {{.items = two, .actions = Texts{"", "1"}}, "number 1 of the actions is blank"},
           {{.items = two, .actions = Texts{"1", "5"}}, "dataset memory has no action '5'"},
           {{.items = two, .timestamps = Texts{"1", "2"}, .request_time = "1"},
            "is before that of the last event, 2"},
           {{.items = two, .request_time = ""}, "'' is not a time"},
           {{.items = two, .context = {{"user", "1"}}}, "no context feature 'user'"},
           {{.items = two, .context = {{"user_id", "3"}}}, "such as '1'"},
           {{.items = two, .context = {{"user_id", " "}}},
            "is no value of context feature user_id"},
           {{.items = two, .context = {{"user_id", "1"}, {"user_id", "1"}}}, "is given twice"},
           {{.items = two, .candidates = two}, "leave out --candidates"}}) {
    EXPECT_THAT(error_of(dataset, spec, request), HasSubstr(message));
  }
  const ModelSpec ranking = spec_of(dataset, "hstu", Task::ranking);
  EXPECT_THAT(error_of(dataset, ranking, {.items = two}), HasSubstr("--candidates \"id,id,...\""));
  EXPECT_THAT(error_of(dataset, ranking, {.items = two, .candidates = Texts{}}),
              HasSubstr("--candidates \"id,id,...\""));
  EXPECT_THAT(error_of(dataset, ranking, {.items = two, .candidates = Texts{"1", ""}}),
              HasSubstr("number 2 of the candidates is blank"));
  const MemoryDataset timeless({{.items = {1, 2}, .actions = {0, 1}}});
  const ModelSpec hstu = spec_of(timeless, "hstu");
  EXPECT_THAT(error_of(timeless, hstu, {.items = two, .timestamps = two}), HasSubstr("no times"));
  EXPECT_THAT(error_of(timeless, hstu, {.items = two, .request_time = "1"}), HasSubstr("no times"));
  EXPECT_THAT(error_of(timeless, hstu, {.items = two, .context = {{"age", "1"}}}),
              HasSubstr("it has none"));
}

TEST(RequestWindow, WithoutHistoryRankingReadsCandidatesAlone) {
  const auto dataset = MemoryDataset::of_lengths({0, 4});
  const ModelSpec spec = spec_of(dataset, "hstu", Task::ranking);
  const auto model = models::hstu::make_ranking_model(spec, 1);
  model->eval();
  for (const Request& request : {Request{.user = "0", .candidates = Texts{"2", "3"}},
                                 Request{.items = Texts{}, .candidates = Texts{"2", "3"}}}) {
    const RequestWindow window = request_window(dataset, spec, request);
    EXPECT_EQ(window.batch.items, (Values{2, 3}));
    EXPECT_EQ(window.batch.actions, (Values{0, 0}));
    EXPECT_EQ(window.batch.timestamps, (Values{0, 0}));
    EXPECT_THAT(window.warnings, IsEmpty());
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(model->forward(window.batch, {}).logits.isfinite().all().item<bool>());
  }
  const ModelSpec retrieval = spec_of(dataset, "hstu_research");
  EXPECT_THAT(error_of(dataset, retrieval, {.user = "0"}), HasSubstr("user '0' has no events"));
}

TEST(TypicalEvents, TheGapIsTheMedianOverUsers) {
  const MemoryDataset dataset({{.items = {1, 1, 1, 1}, .timestamps = {5, 6, 8, 1000}},
                               {.items = {1, 1, 1}, .timestamps = {0, 0, 7}}});
  EXPECT_EQ(typical_gap(dataset), 2);  // of 0, 1, 2, 7, 992
  EXPECT_EQ(typical_gap(MemoryDataset::of_lengths({1, 1})), 0);
}

TEST(TypicalEvents, UsersAreSampledFromAllRows) {
  // The first 1500 of 4000 users have gaps of 1 and action 0, the others 9 and 1.
  std::vector<MemoryDataset::User> users;
  for (int u = 0; u < 4000; ++u) {
    const bool rest = u >= 1500;
    users.push_back({.items = {1, 2}, .actions = {rest, rest}, .timestamps = {0, rest ? 9 : 1}});
  }
  const MemoryDataset dataset(std::move(users));
  EXPECT_EQ(typical_gap(dataset), 9);
  EXPECT_EQ(most_common_action(dataset), 1);
}

TEST(TypicalEvents, TimesAtBothEndsOfInt64DoNotOverflow) {
  constexpr int64_t kFirst = std::numeric_limits<int64_t>::min(),
                    kLast = std::numeric_limits<int64_t>::max();
  const MemoryDataset dataset({{.items = {1, 2}, .timestamps = {kFirst, kLast}}});
  EXPECT_EQ(typical_gap(dataset), kLast);
  const ModelSpec spec = spec_of(dataset, "hstu_research");
  EXPECT_EQ(request_window(dataset, spec, {.user = "0"}).batch.timestamps,
            (Values{kFirst, kLast, kLast}));
  EXPECT_EQ(request_window(dataset, spec, {.items = Texts{"1", "2"}}).batch.timestamps,
            (Values{-kLast, 0, kLast}));
}

}  // namespace
}  // namespace seqfuse::serving::recommend_window_test
