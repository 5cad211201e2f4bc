// The page of measurements, and the charts that it and `bench sparsity` draw.
#include "tuning/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "report/chart.h"
#include "report/heat_map.h"
#include "tests/tuning/made_up_times.h"

namespace seqfuse::page_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using tuning::Measurement;

const tuning::Setting kSetting = bert_setting(16, 1024, "sliding:32", .0625);

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Measurement of_scheme(int64_t scheme, double milliseconds) {
  return measured({kSetting, fusion::Scheme::from_number(scheme), milliseconds});
}

Measurement of_segment(int first, int last, double milliseconds) {
  Measurement m = of_scheme(41130, milliseconds);
  m.scheme.reset();
  m.segment = {first, last};
  return m;
}

TEST(MeasurementPage, OneSettingOnOneCard) {
  std::vector<Measurement> all{of_scheme(43690, 12), of_scheme(41130, 3), of_scheme(43669, 9)};
  all[1].predicted = 4;
  all.push_back(of_segment(2, 6, .05));
  for (int op = 0; op < fusion::kOps; ++op) all.push_back(of_segment(op, op, .0625));
  const std::string page = tuning::html_page("tune.db", all, "0.1.0");
  EXPECT_THAT(page,
              AllOf(HasSubstr("<h2>bert-base (16, 1024) sliding:32 float16</h2>"),
                    HasSubstr("NVIDIA H200, driver 580.95, seqfuse 0.1.0"),
                    HasSubstr("<dd>3 ok</dd>"), HasSubstr("<dd>16 ok</dd>"),
                    HasSubstr("time by segment of 41130"), Not(HasSubstr("Not measured alone"))));
  // 41130 is QK to transpose and ten operators alone: 12 (.05 + 10 * .0625).
  EXPECT_THAT(page, HasSubstr("take 8.1 ms in 12 layers; the whole program takes 3 ms"));
  EXPECT_EQ(count(page, "<rect class=\"bar\""), 11);
  EXPECT_THAT(page, HasSubstr("41130: measured 3 ms, predicted 4 ms"));
  // The best so far goes from 12 to 3 and stays.
  EXPECT_THAT(page, HasSubstr(",1,12,0],["));
  EXPECT_THAT(page, HasSubstr(",2,3,0],["));
  EXPECT_THAT(page, HasSubstr(",3,3,0]]"));
  EXPECT_LT(page.find("<th>41130</th>"), page.find("<th>43669</th>"));  // the fastest first
  EXPECT_LT(page.find("<th>43669</th>"), page.find("<th>43690</th>"));
}

TEST(MeasurementPage, OtherCardsAreOtherSections) {
  std::vector<Measurement> all{of_scheme(41130, 3), of_scheme(41130, 5)};
  all[1].origin.card = "A <b>card";
  const std::string page = tuning::html_page("a & b", all, "0.1.0");
  EXPECT_EQ(count(page, "<section>"), 2);
  EXPECT_THAT(page, AllOf(HasSubstr("A &lt;b&gt;card"), HasSubstr("<h1>a &amp; b</h1>")));
}

TEST(MeasurementPage, NothingTimedYet) {
  EXPECT_THAT(tuning::html_page("t", {}, "0.1.0"), HasSubstr("Nothing has been measured yet"));
  Measurement failed = of_scheme(41130, 3);
  failed.milliseconds.reset();
  failed.status = tuning::Status::failed;
  const std::string page = tuning::html_page("t", std::vector{failed}, "0.1.0");
  EXPECT_THAT(page, AllOf(HasSubstr("No scheme has a time yet"), HasSubstr("<dd>1 failed</dd>")));
}

TEST(ScatterChart, DotsOnTheDiagonal) {
  report::ScatterChart chart{.title = "t", .x_label = "x", .diagonal = "equal", .series = {}};
  EXPECT_THAT(to_html(chart), HasSubstr("no values yet"));
  chart.series = {{.name = "s", .dots = {{1, 1, "low"}, {10, 10, "<high>"}, {0, 1, "left out"}}}};
  const std::string html = to_html(chart);
  EXPECT_EQ(count(html, "<circle"), 2);
  EXPECT_THAT(html, AllOf(HasSubstr("<title>&lt;high&gt;</title>"), Not(HasSubstr("left out"))));
  // The range is from 1 / 1.05 to 10.5, so both dots are 2 % of it from an end: on the line from
  // (72, 250) to (544, 14).
  EXPECT_THAT(html, HasSubstr("cx=\"81.6\" cy=\"245.2\""));
  EXPECT_THAT(html, HasSubstr("cx=\"534.4\" cy=\"18.8\""));
}

TEST(HeatMap, CellsColoursAndMissingValues) {
  const report::HeatMap map{.title = "a <map>",
                            .row_label = "layer",
                            .column_label = "head",
                            .rows = 2,
                            .columns = 2,
                            .panels = {{"below 0.1", {0, 1, .5, std::nan("")}}}};
  const std::string svg = to_svg(map);
  EXPECT_THAT(svg, AllOf(HasSubstr("a &lt;map&gt;"), HasSubstr("fill=\"#ffffff\""),
                         HasSubstr("fill=\"#084081\""), HasSubstr("fill=\"#e0e0e0\""),
                         HasSubstr("layer 1, head 0: 50 %"), HasSubstr("layer 1, head 1: no value"),
                         HasSubstr(">100</text>")));
  EXPECT_EQ(count(svg, "<title>"), 4);
}

}  // namespace
}  // namespace seqfuse::page_test
