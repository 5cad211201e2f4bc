// seqfuse recommend: users, histories, candidates, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/file.h"
#include "report/run_files.h"
#include "tests/cli/trained_runs.h"

namespace seqfuse::recommend_test {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

Outcome outcome_of(const std::string& arguments) {
  return run_seqfuse("recommend --json " + arguments);
}

json recommend(const std::string& arguments) {
  const Outcome outcome = outcome_of(arguments);
  EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.err;
  return json::parse(outcome.out);
}

// The outcome with a request on standard input.
Outcome outcome_of(const std::string& arguments, const std::string& request) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "request.json").string();
  std::ofstream(file) << request;
  return outcome_of(arguments + " --history - < " + file);
}

// The largest difference of a score; infinite if the items differ.
double difference(const json& a, const json& b, const std::string& score = "score") {
  if (a["items"].empty() || a["items"].size() != b["items"].size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a["items"].size(); ++i) {
    const json &x = a["items"][i], &y = b["items"][i];
    if (x["item"] != y["item"]) return INFINITY;
    largest = std::max(largest, std::abs(x[score].get<double>() - y[score].get<double>()));
  }
  return largest;
}

// The events of user u0 in the log, as flags of a history and as JSON.
const std::string kItems = " --history item0,item1,item2,item3,item4,item5,item6,item7";
const std::string kTimes = " --timestamps 1000,1060,1120,1180,1240,1300,1360,1420";
const std::string kActions = " --actions 0,1,2,3,4,0,1,2";
const std::string kCountry = " --context country=country0";
const std::string kJson = R"({"items": ["item0", "item1", "item2", "item3", "item4", "item5",
    "item6", "item7"], "timestamps": [1000, 1060, 1120, 1180, 1240, 1300, "1360", 1420.5],
    "actions": [0, 1, 2, 3, 4, "0", "1", "2"], "context": {"country": "country0"}})";

TEST(Recommend, UserGetsUnseenItemsBestFirst) {
  const json items = recommend(TrainedRuns::get().retrieval() + " --user u0 --top-k 20")["items"];
  ASSERT_EQ(items.size(), 7U);  // u0 has had item0 to item7 of 15
  std::set<std::string> names;
  for (size_t i = 0; i < items.size(); ++i) {
    names.insert(items[i]["item"]);
    EXPECT_LE(items[i]["score"], items[i > 0 ? i - 1 : 0]["score"]);
  }
  EXPECT_EQ(names, (std::set<std::string>{"item8", "item9", "item10", "item11", "item12", "item13",
                                          "item14"}));
}

TEST(Recommend, SeenItemsOnRequest) {
  EXPECT_EQ(
      recommend(TrainedRuns::get().retrieval() + " --user u0 --top-k 20 --include-seen")["items"]
          .size(),
      15U);
}

TEST(Recommend, HistoryIsReadAsIds) {
  const json items =
      recommend(TrainedRuns::get().retrieval() + " --history 'item3, item4' --top-k 3")["items"];
  ASSERT_EQ(items.size(), 3U);
  for (const json& entry : items) {
    EXPECT_NE(entry["item"], "item3");
    EXPECT_NE(entry["item"], "item4");
  }
}

TEST(Recommend, TableHasRankItemScoreTitle) {
  const TrainedRuns& runs = TrainedRuns::get();
  const TemporaryDirectory directory;
  const auto path = [&](const char* name) { return (directory.path() / name).string(); };
  fs::create_directory(path("log"));
  fs::copy_file(runs.log(), path("log/log.csv"));
  std::ofstream titles(path("log/titles.csv"));
  titles << "item_id,title\n";
  for (int item = 0; item < 15; ++item) titles << "item" << item << ",Title " << item << '\n';
  titles.close();
  const std::string config = fs::path(runs.data()).replace_filename("retrieval.gin").string();
  for (const std::string& arguments :
       {"preprocess --input " + path("log") + " --title-file titles.csv --output " + path("data") +
            " --time-column timestamp --action-column rating --context-columns country",
        "train retrieval --gin-config-file " + config + " --data " + path("data") + " --output " +
            path("run") + " --gin TrainerArgs.max_train_iters=1"}) {
    const Outcome outcome = run_seqfuse(arguments);
    ASSERT_EQ(outcome.code, 0) << arguments << "\n" << outcome.err;
  }
  const std::string arguments = path("run") + " --user u1 --top-k 3";
  const Outcome outcome = run_seqfuse("recommend " + arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json items = recommend(arguments)["items"];
  ASSERT_EQ(items.size(), 3U);
  size_t width = 0;  // of the column of ids: the longest one
  for (const json& item : items) width = std::max(width, item["item"].get<std::string>().size());
  std::string expected = fmt::format("rank  {:>{}}   score  title\n", "item", width);
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i]["item"].get<std::string>();
    const std::string title = "Title " + item.substr(std::string("item").size());
    EXPECT_EQ(items[i]["title"].get<std::string>(), title);
    expected += fmt::format("{:>4}  {:>{}}  {:>6.4f}  {}\n", i + 1, item, width,
                            items[i]["score"].get<double>(), title);
  }
  EXPECT_EQ(outcome.out, expected);
}

TEST(Recommend, UnknownIdsAreRefusedWithAnExample) {
  const Outcome user = run_seqfuse("recommend " + TrainedRuns::get().retrieval() + " --user 99");
  EXPECT_EQ(user.code, 2);
  EXPECT_THAT(user.err, HasSubstr("'99'"));
  EXPECT_THAT(user.err, HasSubstr("such as 'u"));
  const Outcome item =
      run_seqfuse("recommend " + TrainedRuns::get().retrieval() + " --history item1,nothing");
  EXPECT_EQ(item.code, 2);
  EXPECT_THAT(item.err, HasSubstr("'nothing'"));
}

TEST(Recommend, NeedsEitherAUserOrAHistory) {
  const std::string run = TrainedRuns::get().retrieval();
  for (const char* source : {"", " --user u0 --history item1"}) {
    const Outcome outcome = run_seqfuse("recommend " + run + source);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("Exactly 1 option from [--user,--history,--users]"));
  }
}

TEST(Recommend, RankingRunsOrderCandidates) {
  const std::string run = TrainedRuns::get().ranking();
  const Outcome without = run_seqfuse("recommend " + run + " --user u0");
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, HasSubstr("--candidates"));
  const json items = recommend(run + " --user u0 --candidates item9,item1,item5")["items"];
  ASSERT_EQ(items.size(), 3U);
  EXPECT_GE(items[0]["expected class"], items[1]["expected class"]);
  // A candidate's score does not depend on the other candidates.
  const json alone = recommend(run + " --user u0 --candidates item5")["items"];
  for (const json& entry : items) {
    if (entry["item"] == "item5") {
      EXPECT_NEAR(entry["expected class"].get<double>(), alone[0]["expected class"].get<double>(),
                  1e-5);
    }
  }
}

TEST(Recommend, TheEventsOfAUserAreTheUser) {
  for (const std::string& run : {TrainedRuns::get().retrieval(), TrainedRuns::get().research()}) {
    const std::string show = run + " --top-k 20 --include-seen";
    const json user = recommend(show + " --user u0");
    EXPECT_EQ(user["items"].size(), 15U);
    EXPECT_LT(difference(recommend(kItems + kTimes + kActions + kCountry + " " + show), user),
              1e-6);
    const Outcome from_json = outcome_of(show, kJson);
    ASSERT_EQ(from_json.code, 0) << from_json.err;
    EXPECT_LT(difference(json::parse(from_json.out), user), 1e-6);
  }
}

TEST(Recommend, TheEventsOfAUserAreTheUserForCandidates) {
  const std::string show = TrainedRuns::get().ranking() + " --candidates item9,item1,item5";
  const json user = recommend(show + " --user u0");
  const std::string score = "expected class";
  EXPECT_LT(difference(recommend(show + kItems + kTimes + kActions + kCountry), user, score), 1e-6);
  json request = json::parse(kJson);
  request["candidates"] = {"item9", "item1", "item5"};
  const Outcome from_json = outcome_of(TrainedRuns::get().ranking(), request.dump());
  ASSERT_EQ(from_json.code, 0) << from_json.err;
  EXPECT_LT(difference(json::parse(from_json.out), user, score), 1e-6);
}

TEST(Recommend, TimesActionsContextAndTheTimeOfTheRequestAreRead) {
  const std::string research = TrainedRuns::get().research() + " --top-k 20 --include-seen";
  const json by_time = recommend(research + kItems + kTimes);
  const std::string other_times = " --timestamps 0,0,0,0,0,90000,90000,90000";
  EXPECT_GT(difference(recommend(research + kItems + other_times), by_time), 1e-4);
  EXPECT_GT(difference(recommend(research + kItems + kTimes + " --request-time 900000"), by_time),
            1e-4);
  EXPECT_GT(difference(recommend(research + " --user u0 --request-time 900000"), by_time), 1e-4);

  const std::string retrieval = TrainedRuns::get().retrieval() + " --top-k 20 --include-seen";
  const json by_action = recommend(retrieval + kItems + kActions + kCountry);
  EXPECT_GT(difference(recommend(retrieval + kItems + " --actions 4,4,4,4,4,4,4,4" + kCountry),
                       by_action),
            1e-4);
  EXPECT_GT(difference(recommend(retrieval + kItems + kActions + " --context country=country1"),
                       by_action),
            1e-5);
  EXPECT_GT(difference(recommend(retrieval + kItems + kActions), by_action), 1e-5);
}

TEST(Recommend, TheRequestComesOneTypicalGapAfterTheLastEvent) {
  // All events of the log are 60 apart, so filled-in times equal those of the log.
  const std::string show = TrainedRuns::get().research() + " --top-k 20 --include-seen";
  const json user = recommend(show + " --user u0");
  EXPECT_LT(difference(recommend(show + kItems), user), 1e-6);
  EXPECT_LT(difference(recommend(show + " --user u0 --request-time 1480"), user), 1e-6);
  EXPECT_LT(difference(recommend(show + kItems + kTimes + " --request-time 1480"), user), 1e-6);
  EXPECT_LT(difference(recommend(show + kItems + " --request-time 1480"), user), 1e-6);
}

TEST(Recommend, WarnsOnceOfWhatTheModelReadsAndTheHistoryLacks) {
  const Outcome times = outcome_of(TrainedRuns::get().research() + kItems);
  EXPECT_EQ(std::ranges::count(times.err, '\n'), 1) << times.err;
  EXPECT_THAT(times.err,
              HasSubstr("the model reads times, and the history has none (--timestamps)"));
  EXPECT_THAT(times.err, HasSubstr("60 apart"));
  EXPECT_EQ(outcome_of(TrainedRuns::get().research() + kItems + kTimes).err, "");
  for (const std::string& run :
       {TrainedRuns::get().retrieval(), TrainedRuns::get().ranking() + " --candidates item9"}) {
    const Outcome actions = outcome_of(run + kItems);
    EXPECT_EQ(std::ranges::count(actions.err, '\n'), 1) << actions.err;
    EXPECT_THAT(actions.err, HasSubstr("the history has none (--actions)"));
    EXPECT_THAT(actions.err, HasSubstr("'0'"));  // 80 of 320, as are 1 and 2
    EXPECT_EQ(outcome_of(run + kItems + kActions).err, "");
    EXPECT_EQ(outcome_of(run + " --user u0").err, "");
    EXPECT_THAT(outcome_of(run + kItems + kActions + kTimes).err, HasSubstr("reads no times"));
  }
}

TEST(Recommend, UnknownItemsAreLeftOutOnRequest) {
  const std::string run = TrainedRuns::get().retrieval() + " --top-k 20 --skip-unknown";
  const Outcome some = outcome_of(run + " --history x,item3,y,item4 --actions 1,2,3,4");
  ASSERT_EQ(some.code, 0) << some.err;
  EXPECT_THAT(some.err, HasSubstr("left out: 2 of the history ('x', 'y')"));
  EXPECT_LT(
      difference(json::parse(some.out), recommend(run + " --history item3,item4 --actions 2,4")),
      1e-6);
  const Outcome none = outcome_of(run + " --history x,y");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("none of the items of the history given"));
  const Outcome candidates = outcome_of(TrainedRuns::get().ranking() +
                                        " --user u0 --skip-unknown --candidates x,item3,y,z");
  ASSERT_EQ(candidates.code, 0) << candidates.err;
  EXPECT_EQ(json::parse(candidates.out)["items"].size(), 1U);
  EXPECT_THAT(candidates.err, HasSubstr("3 of the candidates ('x', 'y', 'z')"));
}

TEST(Recommend, WrongRequestsAreRefused) {
  const std::string retrieval = TrainedRuns::get().retrieval(),
                    research = TrainedRuns::get().research(),
                    ranking = TrainedRuns::get().ranking();
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {ranking + " --user ''", "--candidates"},
           {ranking + " --candidates item1 --user ''", "the user is blank"},
           {retrieval + " --user ''", "the user is blank"},
           {retrieval + " --user ' '", "the user is blank"},
           {retrieval + " --history ''", "number 1 of the history is blank"},
           {ranking + " --history '' --candidates item1", "number 1 of the history is blank"},
           {retrieval + " --history ' , '", "number 1 of the history is blank"},
           {retrieval + " --history item1,,item2", "number 2 of the history is blank"},
           {retrieval + " --history item1,", "number 2 of the history is blank"},
           {ranking + " --user u0 --candidates ''", "number 1 of the candidates is blank"},
           {ranking + " --user u0 --candidates item1,,item2",
            "number 2 of the candidates is blank"},
           {retrieval + " --user u0 --candidates item1", "leave out --candidates"},
           {research + " --history item1 --timestamps ''", "number 1 of the timestamps is blank"},
           {research + " --history item1 --timestamps noon", "'noon' is not a time"},
           {research + " --history item1 --timestamps 1,2", "timestamps: 2 given for 1 items"},
           {research + " --history item1,item2 --timestamps 2,1", "is earlier than '2'"},
           {research + " --history item1 --timestamps 5 --request-time 4",
            "before that of the last"},
           {research + " --user u0 --request-time 1419",
            "1419, is before that of the last event, 1420"},
           {research + " --user u0 --request-time ''", "'' is not a time"},
           {retrieval + " --history item1 --actions ''", "number 1 of the actions is blank"},
           {retrieval + " --history item1 --actions 7", "give one of 0, 1, 2, 3, 4"},
           {retrieval + " --history item1 --actions 1,2", "actions: 2 given for 1 items"},
           {retrieval + " --user u0 --actions 1", "are in the dataset"},
           {retrieval + " --history item1 --context ''", "expected feature=value"},
           {retrieval + " --history item1 --context country", "expected feature=value"},
           {retrieval + " --history item1 --context contry=country1", "did you mean 'country'"},
           {retrieval + " --history item1 --context country=x", "such as 'country0'"},
           {retrieval + " --history item1 --context country=", "is no value of context feature"},
           {retrieval + " --user u0 --top-k 0", "--top-k"},
           {retrieval + " --user u0 --top-k -1", "--top-k"},
           {retrieval + " --user u0 --top-k ten", "--top-k"},
           {retrieval + " --user u0 --top-k 1.5", "--top-k"},
           {retrieval + " --user u0 --top-k ''", "--top-k"},
           {retrieval + " --user u0 --top-k 9223372036854775808", "--top-k"},
           {"'' --user u0", "RUN"},
           {"' ' --user u0", "RUN"},
           {retrieval + " --user u0 --data ''", "--data"},
           {retrieval + " --user u0 --data ' '", "--data"},
           {retrieval + " --user u0 --checkpoint ''", "--checkpoint"},
           {retrieval + " --user u0 --checkpoint ' '", "--checkpoint"}}) {
    const Outcome outcome = outcome_of(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.text();
    EXPECT_THAT(outcome.err, HasSubstr(message)) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
  }
}

TEST(Recommend, WrongJsonIsRefused) {
  const std::string retrieval = TrainedRuns::get().retrieval();
  for (const auto& [request, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "the request is empty"},
           {"{\"items\": [", "not valid JSON"},
           {"[\"item1\"]", "expected an object"},
           {"{}", "has no items"},
           {R"({"items": []})", "the history has no items"},
           {R"({"items": [""]})", "number 1 of the history is blank"},
           {R"({"items": ["item1", "  "]})", "number 2 of the history is blank"},
           {R"({"items": ["item1", 2]})", "item '2' is not among the 15 items"},
           {R"({"items": "item1"})", "items is \"item1\": expected a list"},
           {R"({"items": ["item1"], "timestamps": 5})", "timestamps is 5: expected a list"},
           {R"({"items": ["item1"], "context": {"country": null}})", "context.country is null"},
           {R"({"items": ["item1"], "candidates": ["item2"]})", "leave out --candidates"},
           {R"({"items": ["item1"], "history": []})", "unknown field 'history'"}}) {
    const Outcome outcome = outcome_of(retrieval, request);
    EXPECT_EQ(outcome.code, 2) << request << "\n" << outcome.text();
    EXPECT_THAT(outcome.err, HasSubstr(message)) << request;
  }
  const Outcome twice =
      outcome_of(retrieval + " --actions 1", R"({"items": ["item1"], "actions": [1]})");
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("actions is given twice"));
}

TEST(Recommend, TopKMayExceedTheCatalogue) {
  EXPECT_EQ(
      recommend(TrainedRuns::get().retrieval() + " --user u0 --top-k 9223372036854775807")["items"]
          .size(),
      7U);
  EXPECT_EQ(recommend(TrainedRuns::get().ranking() +
                      " --user u0 --candidates item1,item2 --top-k 9223372036854775807")["items"]
                .size(),
            2U);
  EXPECT_EQ(recommend(TrainedRuns::get().ranking() +
                      " --user u0 --candidates item1,item2 --top-k 1")["items"]
                .size(),
            1U);
}

TEST(Recommend, WithoutHistoryCandidatesAreRankedAlone) {
  const Outcome outcome = outcome_of(TrainedRuns::get().ranking(), R"({"items": [],
      "candidates": ["item1", "item2"], "context": {"country": "country1"}})");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json items = json::parse(outcome.out)["items"];
  ASSERT_EQ(items.size(), 2U);
  EXPECT_GT(items[1]["expected class"].get<double>(), 0.0);
}

TEST(Recommend, SaysWhereADatasetIsExpectedThatMoved) {
  const TemporaryDirectory directory;
  const fs::path run = directory.path() / "run", data = directory.path() / "data";
  fs::copy(TrainedRuns::get().retrieval(), run, fs::copy_options::recursive);
  report::RunInfo info = report::read_run_info(run);
  info.dataset_path = data.string();
  report::write_run_info(run, info);
  const std::string found = " --data " + TrainedRuns::get().data();
  for (const std::string& verb :
       {"recommend " + run.string() + " --user u0", "evaluate " + run.string()}) {
    const Outcome moved = run_seqfuse(verb);
    EXPECT_EQ(moved.code, 1);
    EXPECT_THAT(moved.err,
                HasSubstr("trained on the dataset " + data.string() + ", which no longer exists"));
    EXPECT_THAT(moved.err, HasSubstr("--data DIR"));
    EXPECT_EQ(run_seqfuse(verb + found).code, 0);
  }
  fs::copy(TrainedRuns::get().data(), data, fs::copy_options::recursive);
  fs::resize_file(data / "sequences/part-00000.arrow", 100);
  for (const std::string& verb :
       {"recommend " + run.string() + " --user u0", "evaluate " + run.string()}) {
    const Outcome damaged = run_seqfuse(verb);
    EXPECT_EQ(damaged.code, 1);
    EXPECT_THAT(damaged.err, HasSubstr("part-00000.arrow is corrupt"));
    EXPECT_THAT(damaged.err, HasSubstr("--data DIR"));
  }
}

// A copy of a run that was trained on a copy of the dataset.
class RunWithOwnDataset {
 public:
  explicit RunWithOwnDataset(const std::string& run) {
    fs::copy(run, path(), fs::copy_options::recursive);
    fs::copy(TrainedRuns::get().data(), data(), fs::copy_options::recursive);
    report::RunInfo info = report::read_run_info(path());
    info.dataset_path = data().string();
    report::write_run_info(path(), info);
  }
  fs::path path() const { return directory_.path() / "run"; }
  fs::path data() const { return directory_.path() / "data"; }

 private:
  TemporaryDirectory directory_;
};

TEST(Recommend, HistoriesAreServedWithoutTheDataSet) {
  for (const std::string& trained : {TrainedRuns::get().retrieval(), TrainedRuns::get().research(),
                                     TrainedRuns::get().ranking()}) {
    const RunWithOwnDataset run(trained);
    const bool ranks = trained == TrainedRuns::get().ranking();
    const std::string score = ranks ? "expected class" : "score";
    const std::string show =
        run.path().string() + (ranks ? " --candidates item9,item1,item5" : " --top-k 20");
    // Filled-in times and actions come from the run as well.
    const std::string given = show + kItems + kTimes + kActions + kCountry, bare = show + kItems;
    const std::string with_data = " --data " + run.data().string();
    const json expected = recommend(given + with_data), made_up = recommend(bare + with_data);
    EXPECT_EQ(difference(recommend(given), expected, score), 0);
    fs::remove_all(run.data());
    EXPECT_EQ(difference(recommend(given), expected, score), 0);
    EXPECT_EQ(difference(recommend(bare), made_up, score), 0);
    const Outcome wrong = outcome_of(show + " --history nothing");
    EXPECT_EQ(wrong.code, 2);
    EXPECT_THAT(wrong.err, HasSubstr("'nothing' is not among the 15 items"));

    const Outcome user = outcome_of(show + " --user u0");
    EXPECT_EQ(user.code, 1);
    EXPECT_THAT(user.err, HasSubstr("trained on the dataset " + run.data().string()));
    EXPECT_THAT(user.err, HasSubstr("--data DIR"));
    EXPECT_THAT(user.err, HasSubstr("--history works without it"));
    EXPECT_EQ(outcome_of(show + " --user u0 --data " + TrainedRuns::get().data()).code, 0);
    EXPECT_EQ(run_seqfuse("evaluate " + run.path().string()).code, 1);
  }
}

TEST(Recommend, RunsWithoutAVocabularyNeedTheirDataSet) {
  const RunWithOwnDataset run(TrainedRuns::get().retrieval());
  const std::string given = run.path().string() + kItems + kActions + kCountry;
  const json expected = recommend(given);
  fs::remove_all(run.path() / "vocabulary");  // as in runs of earlier versions
  EXPECT_EQ(difference(recommend(given), expected), 0);
  fs::remove_all(run.data());
  const Outcome lost = outcome_of(given);
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.err, HasSubstr("which no longer exists"));
  const std::string data = TrainedRuns::get().data();
  EXPECT_EQ(difference(recommend(given + " --data " + data), expected), 0);
  // Resuming saves one.
  ASSERT_EQ(run_seqfuse("train retrieval --resume " + run.path().string() + " --data " + data +
                        " --gin TrainerArgs.max_train_iters=7")
                .code,
            0);
  EXPECT_TRUE(fs::exists(run.path() / "vocabulary/vocabulary.json"));
  EXPECT_EQ(difference(recommend(given + " --checkpoint step_6"), expected), 0);
}

TEST(Recommend, ADamagedVocabularyIsNamed) {
  const RunWithOwnDataset run(TrainedRuns::get().retrieval());
  const fs::path file = run.path() / "vocabulary/items.arrow";
  std::string content = read_file(file);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  write_file_atomically(file, content);
  const Outcome outcome = outcome_of(run.path().string() + kItems);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("items.arrow is corrupt"));
  EXPECT_EQ(outcome_of(run.path().string() + kItems + " --data " + run.data().string()).code, 0);
}

TEST(Recommend, DeviceIsChosen) {
  const std::string run = TrainedRuns::get().retrieval();
  EXPECT_EQ(difference(recommend(run + kItems + " --device cpu"), recommend(run + kItems)), 0);
  const Outcome wrong = outcome_of(run + kItems + " --device tpu");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--device"));
}

TEST(Recommend, HelpFitsAScreen) {
  const Outcome outcome = run_seqfuse("recommend --help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_LE(std::ranges::count(outcome.out, '\n'), 40);
  for (const char* flag :
       {"--timestamps", "--actions", "--request-time", "--context", "--skip-unknown"}) {
    EXPECT_THAT(outcome.out, HasSubstr(flag));
  }
}

}  // namespace
}  // namespace seqfuse::recommend_test
