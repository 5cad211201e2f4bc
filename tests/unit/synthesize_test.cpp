#include "data/synthesize/synthesize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "data/synthesize/synthesize_format.h"

namespace seqfuse::data::synthesize_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class SynthesizeTest : public testing::Test {
 protected:
  SynthesizeTest() {
    std::string pattern = fs::temp_directory_path() / "seqfuse_synthesize_XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~SynthesizeTest() override {
    set_num_threads(2);
    fs::remove_all(root_);
  }
  fs::path out(const char* name = "out") const { return root_ / name; }

  fs::path root_;
};

std::vector<std::string> lines_of(const fs::path& file) {
  std::istringstream in(read_file(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> split_at(const std::string& line, const std::string& separator) {
  std::vector<std::string> fields;
  size_t begin = 0;
  for (size_t end; (end = line.find(separator, begin)) != std::string::npos;) {
    fields.push_back(line.substr(begin, end - begin));
    begin = end + separator.size();
  }
  fields.push_back(line.substr(begin));
  return fields;
}

// The content of every file by its path.
std::map<std::string, std::string> contents(const fs::path& directory) {
  std::map<std::string, std::string> result;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      result[fs::relative(entry.path(), directory)] = read_file(entry.path());
    }
  }
  return result;
}

std::vector<std::string> names(const fs::path& directory) {
  std::vector<std::string> result;
  for (const auto& [name, content] : contents(directory)) result.push_back(name);
  return result;
}

// A row of a KuaiRand log.
struct Row {
  int64_t user, video, time;
  std::vector<int64_t> numbers;  // all columns
  int label(int index) const {   // in the order of the action bits
    constexpr int kColumns[] = {5, 6, 7, 8, 9, 10, 11, 16};
    return static_cast<int>(numbers[kColumns[index]]);
  }
};

std::vector<Row> rows_of(const fs::path& log) {
  const auto lines = lines_of(log);
  EXPECT_EQ(
      lines.at(0),
      "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,"
      "is_hate,long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,"
      "is_profile_enter,is_rand,tab");
  std::vector<Row> rows;
  for (size_t i = 1; i < lines.size(); ++i) {
    Row row{};
    for (const auto& field : split_at(lines[i], ",")) row.numbers.push_back(std::stoll(field));
    EXPECT_EQ(row.numbers.size(), 19);
    row.user = row.numbers[0];
    row.video = row.numbers[1];
    row.time = row.numbers[4];
    rows.push_back(std::move(row));
  }
  return rows;
}

double auc(std::vector<std::pair<double, int>> scored) {
  std::ranges::sort(scored);
  double negatives = 0, positives = 0, pairs = 0;
  for (size_t begin = 0; begin < scored.size();) {
    size_t end = begin;
    double tied[2] = {0, 0};
    for (; end < scored.size() && scored[end].first == scored[begin].first; ++end) {
      ++tied[scored[end].second];
    }
    pairs += tied[1] * (negatives + tied[0] / 2);
    negatives += tied[0];
    positives += tied[1];
    begin = end;
  }
  return pairs / (positives * negatives);
}

TEST_F(SynthesizeTest, WritesTheFilesOfEachDataSet) {
  const auto files_like = [&](const char* like) {
    synthesize({.like = like, .users = 6, .length_scale = 0.01}, out(like));
    return names(out(like));
  };
  EXPECT_THAT(files_like("kuairand-1k"),
              ElementsAre("data/log_standard_4_08_to_4_21_1k.csv",
                          "data/log_standard_4_22_to_5_08_1k.csv", "data/user_features_1k.csv",
                          "data/video_features_basic_1k.csv", "synthesis.json"));
  EXPECT_THAT(files_like("kuairand-pure"),
              ElementsAre("data/log_standard_4_08_to_4_21_pure.csv",
                          "data/log_standard_4_22_to_5_08_pure.csv", "data/user_features_pure.csv",
                          "data/video_features_basic_pure.csv", "synthesis.json"));
  EXPECT_THAT(
      files_like("kuairand-27k"),
      ElementsAre("data/log_standard_4_08_to_4_21_27k_part1.csv",
                  "data/log_standard_4_08_to_4_21_27k_part2.csv",
                  "data/log_standard_4_22_to_5_08_27k_part1.csv",
                  "data/log_standard_4_22_to_5_08_27k_part2.csv", "data/user_features_27k.csv",
                  "data/video_features_basic_27k.csv", "synthesis.json"));
  EXPECT_THAT(files_like("ml-1m"),
              ElementsAre("movies.dat", "ratings.dat", "synthesis.json", "users.dat"));
}

TEST_F(SynthesizeTest, KuaiRandRowsAreConsistent) {
  const auto report =
      synthesize({.like = "kuairand-27k", .users = 40, .items = 500, .events = 4000}, out());
  std::map<int64_t, int64_t> last_time;
  std::map<int64_t, std::set<int64_t>> videos;
  std::map<int64_t, int64_t> durations;
  int64_t events = 0;
  for (const char* days : {"4_08_to_4_21", "4_22_to_5_08"}) {
    for (const char* part : {"part1", "part2"}) {
      const auto log = out() / fmt::format("data/log_standard_{}_27k_{}.csv", days, part);
      for (const Row& row : rows_of(log)) {
        ++events;
        EXPECT_EQ(row.user < 20, std::string_view(part) == "part1");
        EXPECT_GE(row.time, last_time[row.user]) << "each user's rows are in order of time";
        last_time[row.user] = row.time;
        EXPECT_TRUE(videos[row.user].insert(row.video).second) << "a video seen twice";
        EXPECT_TRUE(row.video >= 0 && row.video < 500);

        const int64_t date = row.numbers[2], hour = row.numbers[3] / 100;
        EXPECT_TRUE(std::string_view(days) == "4_08_to_4_21" ? date >= 20220408 && date <= 20220421
                                                             : date >= 20220422 && date <= 20220508)
            << date;
        EXPECT_EQ((row.time / 3'600'000 + 8) % 24, hour) << "Beijing is 8 hours ahead";

        const int64_t play = row.numbers[12], duration = row.numbers[13];
        EXPECT_EQ(durations.emplace(row.video, duration).first->second, duration);
        if (row.label(6) == 1) {
          EXPECT_EQ(row.label(0), 1) << "long_view without is_click";
          EXPECT_GE(play, std::min<int64_t>(duration, 18'000));
        } else if (row.label(0) == 1) {
          EXPECT_GE(play, std::min<int64_t>(duration, 7'000));
        }
        EXPECT_LE(play, duration);
      }
    }
  }
  EXPECT_EQ(events, 4000);
  EXPECT_EQ(report.events, 4000);
  EXPECT_EQ(videos.size(), 40);

  const auto users = lines_of(out() / "data/user_features_27k.csv");
  ASSERT_EQ(users.size(), 41);
  EXPECT_EQ(split_at(users[0], ",").size(), 31);
  for (const std::string& line : users) {  // quoted ranges hold one comma each
    const auto quotes = std::ranges::count(line, '"');
    EXPECT_EQ(std::ranges::count(line, ',') - quotes / 2 + 1, 31) << line;
  }
  const auto items = lines_of(out() / "data/video_features_basic_27k.csv");
  ASSERT_EQ(items.size(), 501);
  for (const std::string& line : items) EXPECT_EQ(std::ranges::count(line, ','), 11) << line;
  for (int64_t video = 0; video < 500; ++video) {
    const auto fields = split_at(items[video + 1], ",");
    EXPECT_EQ(std::stoll(fields[0]), video);
    const auto logged = durations.find(video);
    EXPECT_TRUE(logged == durations.end() || logged->second == std::stoll(fields[6]));
  }
}

TEST_F(SynthesizeTest, MovieLensRowsAreConsistent) {
  const auto report = synthesize({.like = "ml-1m", .users = 300}, out());
  std::set<std::pair<int64_t, int64_t>> pairs;
  std::set<int64_t> users;
  std::map<int64_t, int64_t> ratings;
  for (const std::string& line : lines_of(out() / "ratings.dat")) {
    const auto fields = split_at(line, "::");
    ASSERT_EQ(fields.size(), 4) << line;
    const int64_t user = std::stoll(fields[0]), movie = std::stoll(fields[1]);
    EXPECT_TRUE(movie >= 1 && movie <= report.items);
    EXPECT_TRUE(pairs.emplace(user, movie).second) << "a film rated twice";
    users.insert(user);
    ++ratings[std::stoll(fields[2])];
  }
  EXPECT_EQ(std::ssize(pairs), report.events);
  EXPECT_EQ(*users.begin(), 1);
  EXPECT_EQ(*users.rbegin(), 300);
  EXPECT_EQ(users.size(), 300);
  ASSERT_EQ(ratings.size(), 5);
  EXPECT_EQ(ratings.begin()->first, 1);
  EXPECT_GT(ratings[4], ratings[1]);
  EXPECT_EQ(lines_of(out() / "users.dat").size(), 300);
  for (const auto& line : lines_of(out() / "users.dat")) EXPECT_EQ(split_at(line, "::").size(), 5);
  EXPECT_EQ(std::ssize(lines_of(out() / "movies.dat")), report.items);
  for (const auto& line : lines_of(out() / "movies.dat")) EXPECT_EQ(split_at(line, "::").size(), 3);
}

TEST_F(SynthesizeTest, SameSeedSameBytesWhateverTheThreads) {
  const SynthesisOptions options{
      .like = "kuairand-1k", .users = 150, .length_scale = 0.2, .seed = 3};
  set_num_threads(1);
  synthesize(options, out("a"));
  set_num_threads(5);
  synthesize(options, out("b"));
  EXPECT_EQ(contents(out("a")), contents(out("b")));
  auto other = options;
  other.seed = 4;
  synthesize(other, out("c"));
  EXPECT_NE(contents(out("a")), contents(out("c")));
}

TEST_F(SynthesizeTest, LabelsCanBeLearntButForTheNoise) {
  const auto report =
      synthesize({.like = "kuairand-1k", .users = 400, .items = 1500, .events = 120'000}, out());
  ASSERT_EQ(report.labels.size(), 8);
  std::vector<Row> rows = rows_of(out() / "data/log_standard_4_08_to_4_21_1k.csv");
  const auto later = rows_of(out() / "data/log_standard_4_22_to_5_08_1k.csv");
  rows.insert(rows.end(), later.begin(), later.end());
  for (int label = 0; label < 8; ++label) {
    SCOPED_TRACE(report.labels[label].name);
    // The reported rate is the rate in the written files.
    const auto positives =
        std::ranges::count_if(rows, [&](auto& r) { return r.label(label) == 1; });
    EXPECT_NEAR(report.labels[label].base_rate, static_cast<double>(positives) / 120'000, 1e-9);

    // A mean per item from 7 of 10 users, for the other users.
    std::map<int64_t, std::pair<double, double>> sums;
    for (const Row& row : rows) {
      if (row.user % 10 < 7) {
        sums[row.video].first += row.label(label);
        sums[row.video].second += 1;
      }
    }
    std::vector<std::pair<double, int>> scored;
    for (const Row& row : rows) {
      if (row.user % 10 < 7) continue;
      const auto [sum, count] = sums[row.video];
      scored.emplace_back((sum + report.labels[label].base_rate) / (count + 1), row.label(label));
    }
    const double item_mean = auc(scored);
    if (label < 7) {
      EXPECT_TRUE(report.labels[label].learnable);
      EXPECT_GT(report.labels[label].base_rate, 0.03);
      EXPECT_GT(report.labels[label].oracle_auc, 0.78);
      EXPECT_LT(report.labels[label].oracle_auc, 0.92);
      EXPECT_LT(item_mean, report.labels[label].oracle_auc - 0.15);
    } else {
      EXPECT_FALSE(report.labels[label].learnable);
      EXPECT_NEAR(report.labels[label].base_rate, 0.3, 0.01);
      EXPECT_NEAR(report.labels[label].oracle_auc, 0.5, 0.01);
      EXPECT_NEAR(item_mean, 0.5, 0.02);
    }
  }
}

TEST_F(SynthesizeTest, TastesShowInTheSequence) {
  // A user's past click rate for a hidden topic predicts later clicks. The catalogue gives the
  // topic of a video here; no file contains it.
  const int64_t items = 1600;
  synthesize({.like = "kuairand-1k", .users = 300, .items = items, .events = 90'000, .seed = 11},
             out());
  const synthetic::Catalogue catalogue(items, 11);
  std::map<int64_t, int> topic_of;
  for (int64_t item = 0; item < items; ++item) {
    topic_of[catalogue.number(item)] = catalogue.item(item).topic;
  }
  ASSERT_EQ(std::ssize(topic_of), items) << "numbers are a permutation";
  std::map<std::pair<int64_t, int>, double> seen;  // by user and topic, in the first log
  std::map<int64_t, double> events;
  for (const Row& row : rows_of(out() / "data/log_standard_4_08_to_4_21_1k.csv")) {
    ++seen[{row.user, topic_of[row.video]}];
    ++events[row.user];
  }
  std::vector<std::pair<double, int>> scored;
  for (const Row& row : rows_of(out() / "data/log_standard_4_22_to_5_08_1k.csv")) {
    scored.emplace_back(
        (seen[{row.user, topic_of[row.video]}] + 1) / (events[row.user] + synthetic::kTopics),
        row.label(0));
  }
  EXPECT_GT(auc(scored), 0.68);
}

TEST_F(SynthesizeTest, SuccessorsAreSharedByUsers) {
  // A video's most frequent successor for one half of the users is often right for the other.
  synthesize({.like = "ml-1m", .users = 1500, .length_scale = 0.5}, out());
  std::map<int64_t, std::map<int64_t, int64_t>> followers;
  std::vector<std::pair<int64_t, int64_t>> held_out;
  int64_t previous_user = -1, previous = -1;
  for (const std::string& line : lines_of(out() / "ratings.dat")) {
    const auto fields = split_at(line, "::");
    const int64_t user = std::stoll(fields[0]), movie = std::stoll(fields[1]);
    if (user == previous_user) {
      if (user % 2 == 0) {
        ++followers[previous][movie];
      } else {
        held_out.emplace_back(previous, movie);
      }
    }
    previous_user = user;
    previous = movie;
  }
  int64_t hits = 0;
  for (const auto& [from, to] : held_out) {
    const auto& counts = followers[from];
    const auto best = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
    hits += best != counts.end() && best->first == to ? 1 : 0;
  }
  // Popularity alone gets about 1 %.
  EXPECT_GT(static_cast<double>(hits) / static_cast<double>(held_out.size()), 0.05);
}

TEST(SynthesizedLengths, HaveTheQuantilesOfTheDataSets) {
  using namespace synthetic;
  const auto check = [](std::span<const Quantile> quantiles, int64_t users, double median,
                        double mean, double least, double most) {
    auto lengths = draw_lengths(quantiles, users, 1, std::nullopt, 5);
    EXPECT_FALSE(std::ranges::is_sorted(lengths));
    std::ranges::sort(lengths);
    const auto sum = std::accumulate(lengths.begin(), lengths.end(), 0.0);
    EXPECT_NEAR(static_cast<double>(lengths[users / 2]) / median, 1, 0.03);
    EXPECT_NEAR(sum / static_cast<double>(users) / mean, 1, 0.05);
    EXPECT_NEAR(static_cast<double>(lengths.front()), least, 0.2 * least + 1);
    EXPECT_NEAR(static_cast<double>(lengths.back()) / most, 1, 0.1);
  };
  check(kuairand_1k_lengths(), 1000, 3379, 5038, 10, 49332);
  check(kuairand_27k_lengths(), 27285, 8594, 11811, 100, 228000);
  check(kuairand_pure_lengths(), 27285, 39, 52.65, 1, 910);
  check(ml_1m_lengths(), 6040, 96, 165.6, 20, 2314);
}

TEST(SynthesizedLengths, AddUpToATotal) {
  using namespace synthetic;
  for (const int64_t total : {50, 51, 1000, 123457}) {
    for (const double scale : {1.0, 1e-6}) {
      const auto lengths = draw_lengths(ml_1m_lengths(), 50, scale, total, 1);
      EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), total);
      EXPECT_GE(std::ranges::min(lengths), 1);
    }
  }
}

TEST_F(SynthesizeTest, SmallestSizes) {
  for (const char* like : {"kuairand-pure", "kuairand-1k", "kuairand-27k", "ml-1m"}) {
    const auto report = synthesize({.like = like, .users = 1, .events = 1}, out(like));
    EXPECT_EQ(report.events, 1);
  }
  // More events than items: videos repeat.
  const auto report =
      synthesize({.like = "kuairand-1k", .users = 1, .items = 64, .events = 500}, out());
  EXPECT_EQ(report.longest, 500);
}

TEST_F(SynthesizeTest, RefusesWhatCannotBe) {
  const auto refused = [&](const SynthesisOptions& options, const char* text) {
    EXPECT_THAT([&] { synthesize(options, out()); },
                testing::ThrowsMessage<UsageError>(HasSubstr(text)));
    EXPECT_FALSE(fs::exists(out()));
  };
  refused({.like = "kuairand-1m"}, "did you mean 'kuairand-1k'?");
  refused({.like = "ml-1m", .users = -3}, "--users is -3");
  refused({.like = "ml-1m", .users = 10, .events = 9}, "--events is 9 for 10 users");
  refused({.like = "ml-1m", .users = 10, .length_scale = 0}, "--length-scale is 0");
  refused({.like = "ml-1m", .users = 10, .items = 5}, "--items is 5");
  refused({.like = "ml-1m", .users = 10, .items = 100, .events = 5000}, "items are too few");
}

TEST(LabelTally, GivesRateAndAuc) {
  synthetic::LabelTally tally;
  EXPECT_EQ(tally.auc(), 0.5);
  EXPECT_EQ(tally.base_rate(), 0);
  tally.add(0.1F, false);
  tally.add(0.5F, false);
  tally.add(0.5F, true);
  tally.add(0.9F, true);
  EXPECT_DOUBLE_EQ(tally.base_rate(), 0.5);
  EXPECT_DOUBLE_EQ(tally.auc(), 3.5 / 4);
}

}  // namespace
}  // namespace seqfuse::data::synthesize_test
