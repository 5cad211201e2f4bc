// Axes, charts, statistics and the page: numbers, structure, escaping.
#include "report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "report/axis.h"
#include "report/chart.h"
#include "tests/report_run.h"
#include "tests/temporary_directory.h"
#include "tests/unit/memory_dataset.h"

namespace seqfuse::report::report_page_test {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> result;
  for (const Tick& tick : axis.ticks) result.push_back(tick.label);
  return result;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

TEST(ReportAxis, RoundSteps) {
  EXPECT_THAT(labels(linear_axis(0, 372, 5)), ElementsAre("0", "100", "200", "300"));
  EXPECT_THAT(labels(linear_axis(0.657, 0.741, 5)),
              ElementsAre("0.66", "0.68", "0.70", "0.72", "0.74"));
  EXPECT_THAT(labels(linear_axis(-0.11, 0.11, 5)),
              ElementsAre("-0.10", "-0.05", "0", "0.05", "0.10"));
  EXPECT_THAT(labels(linear_axis(240000, 400000, 4)),
              ElementsAre("250 k", "300 k", "350 k", "400 k"));
  EXPECT_THAT(labels(linear_axis(0, 3e-4, 3)), ElementsAre("0", "100e-6", "200e-6", "300e-6"));
  EXPECT_THAT(labels(linear_axis(0, 2, 5, /*integers=*/true)), ElementsAre("0", "1", "2"));
  EXPECT_THAT(labels(linear_axis(5, 5, 4)), Not(testing::IsEmpty())) << "a single value";
}

TEST(ReportAxis, PowersOfTen) {
  EXPECT_THAT(labels(logarithmic_axis(1, 30000)), ElementsAre("1", "10", "100", "1000", "10 k"));
  EXPECT_THAT(labels(logarithmic_axis(2, 50)), ElementsAre("2", "5", "10", "20", "50"));
  EXPECT_DOUBLE_EQ(logarithmic_axis(1, 100).position(10), 0.5);
}

TEST(ReportAxis, ShortNumbers) {
  EXPECT_EQ(short_number(0.04031), "0.0403");
  EXPECT_EQ(short_number(1234), "1234");
  EXPECT_EQ(short_number(356981.6), "357 k");
  EXPECT_EQ(short_number(2.5e6), "2.5 M");
  EXPECT_EQ(short_number(0), "0");
}

TEST(ReportChart, ThinningKeepsTheOutline) {
  std::vector<Point> points;
  for (int i = 0; i < 10000; ++i) points.push_back({double(i), i == 5003 ? 9.0 : std::sin(i)});
  const auto kept = thin_out(points, 200);
  EXPECT_LE(kept.size(), 203u);
  EXPECT_EQ(kept.front().x, 0);
  EXPECT_EQ(kept.back().x, 9999);
  EXPECT_EQ(std::count_if(kept.begin(), kept.end(), [](const Point& p) { return p.y == 9; }), 1);
  for (size_t i = 1; i < kept.size(); ++i) EXPECT_LT(kept[i - 1].x, kept[i].x);
}

TEST(ReportChart, UndefinedValuesInterruptTheLine) {
  const double undefined = std::numeric_limits<double>::quiet_NaN();
  LineChart chart{.title = "m", .x_label = "step"};
  chart.series = {{"a", {{1, 1}, {2, 2}, {3, undefined}, {4, 4}}, 0}};
  const std::string html = to_html(chart);
  EXPECT_EQ(count(html, "<circle"), 3);
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  const size_t line = html.find(" d=\"M", html.find("data-points"));
  EXPECT_EQ(count(html.substr(line, html.find('/', line) - line), "M"), 2);
  chart.series = {{"a", {{3, undefined}}, 0}};
  EXPECT_THAT(to_html(chart), HasSubstr("no values yet"));
}

TEST(ReportStatistics, LengthsAndPopularity) {
  // Items 1 to n for each user: item 1 has 4 events, 2 has 3, 3 to 5 have 2, 6 to 9 have 1.
  const auto dataset = data::MemoryDataset::of_lengths({1, 2, 5, 9});
  const DatasetStatistics statistics = dataset_statistics(dataset);
  EXPECT_EQ(statistics.users, 4);
  EXPECT_EQ(statistics.items, 9);
  EXPECT_EQ(statistics.events, 17);
  EXPECT_EQ(statistics.min_length, 1);
  EXPECT_EQ(statistics.median_length, 5);
  EXPECT_EQ(statistics.max_length, 9);
  EXPECT_DOUBLE_EQ(statistics.mean_length, 4.25);
  ASSERT_EQ(statistics.lengths.size(), 4u);
  for (size_t b = 0; b < 4; ++b) {
    EXPECT_EQ(statistics.lengths[b].low, 1 << b);
    EXPECT_EQ(statistics.lengths[b].high, (2 << b) - 1);
    EXPECT_EQ(statistics.lengths[b].users, 1);
  }
  ASSERT_EQ(statistics.popularity.size(), 9u);
  EXPECT_EQ(statistics.popularity[1].events, 3);
  EXPECT_EQ(statistics.popularity[8].events, 1);
  EXPECT_EQ(statistics.items_without_events, 0);
  EXPECT_DOUBLE_EQ(statistics.top_percent_share, 4.0 / 17);
}

TEST(ReportStatistics, UsersAndItemsWithoutEvents) {
  const data::MemoryDataset dataset({{.items = {}}, {.items = {3, 3, 0, 3}}});
  const DatasetStatistics statistics = dataset_statistics(dataset);
  ASSERT_EQ(statistics.lengths.size(), 4u);  // 0, 1, 2-3, 4-7
  EXPECT_EQ(statistics.lengths[0].high, 0);
  EXPECT_EQ(statistics.lengths[0].users, 1);
  EXPECT_EQ(statistics.lengths[1].users, 0);
  EXPECT_EQ(statistics.lengths[3].users, 1);
  EXPECT_EQ(statistics.items_without_events, 2);
  ASSERT_EQ(statistics.popularity.size(), 1u);
  EXPECT_EQ(statistics.popularity[0].events, 3);
}

class ReportPage : public testing::Test {
 protected:
  RunLog run(const std::string& name, const HandMadeRun& files) const {
    files.write(directory_.path() / name);
    return read_run(directory_.path() / name);
  }
  TemporaryDirectory directory_;
};

TEST_F(ReportPage, ShowsOneRun) {
  RunLog one = run("one", {});
  one.baselines = {{"popularity", {{"HR@10", 0.0625}}}};
  const std::string page = html_page({one}, run_datasets({one}, ""), "9.9");
  EXPECT_EQ(count(page, "<figure"),
            5);  // three metrics, loss, tokens/s; the learning rate is constant
  EXPECT_EQ(count(page, "<details>"), 1);
  for (const char* part :
       {"one, last: step 20", "one, best: step 10", "0.5000", "popularity 0.0625", "2.5 s",
        "seqfuse 9.9", "/no/such/dataset is missing", "--data DIR"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  for (const char* part : {"http://", "https://", "src=", "href=", "@import", "nan"}) {
    // The only address is the name of SVG in the script.
    EXPECT_EQ(count(page, part), part == std::string("http://") ? 1 : 0) << part;
  }
}

TEST_F(ReportPage, ShowsTheDifferencesOfTwoRuns) {
  HandMadeRun other;
  other.operative.replace(other.operative.find("seed = 1"), 8, "seed = 2");
  other.metrics = "";
  const std::vector<RunLog> runs = {run("one", {}), run("two", other)};
  const std::string page = html_page(runs, run_datasets(runs, ""), "1");
  EXPECT_EQ(count(page, "<details>"), 0);
  EXPECT_THAT(page, HasSubstr("<th>TrainerArgs.seed</th><td class=\"code\">1</td>"
                              "<td class=\"code\">2</td>"));
  EXPECT_THAT(page, Not(HasSubstr("<th>DatasetArgs.dataset_name")));
  EXPECT_THAT(page, HasSubstr("two, no evaluation yet"));
  EXPECT_THAT(page, HasSubstr("baselines of one, two"));
  EXPECT_THAT(page, HasSubstr("seqfuse train retrieval --resume"));
}

TEST_F(ReportPage, EveryTextIsEscaped) {
  const std::string evil = "<b>&\"'";
  HandMadeRun files;
  files.info = {.dataset_path = "/" + evil, .dataset_hash = evil, .version = evil};
  files.operative = "DatasetArgs.dataset_name = '<b>&\"'\n";
  files.metrics = R"({"epoch":1,"evaluation":{"<b>&\"'":1},"step":1})"
                  "\n";
  RunLog bad = run(evil, files), good = run("good", {});
  bad.baselines = {{evil, {{evil, 1}}}};
  for (const auto& runs : {std::vector{bad}, std::vector{bad, good}}) {
    const std::string page = html_page(runs, run_datasets(runs, ""), evil);
    EXPECT_THAT(page, HasSubstr("&lt;b&gt;&amp;&quot;&#39;"));
    EXPECT_EQ(count(page, "<b>"), 0);
  }
}

}  // namespace
}  // namespace seqfuse::report::report_page_test
