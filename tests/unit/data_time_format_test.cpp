// Times in a layout that the user describes.
#include "data/read/time_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_time_format_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;

constexpr int64_t kMarchFirst = 1709251200;  // 2024-03-01 00:00:00 UTC

std::optional<int64_t> seconds(const char* format, const char* time) {
  const auto parsed = TimeFormat(format).parse(time);
  return parsed ? std::optional(parsed->value) : std::nullopt;
}

TEST(TimeFormat, DatesAndTimes) {
  EXPECT_THAT(seconds("%d.%m.%Y", "01.03.2024"), Optional(kMarchFirst));
  EXPECT_THAT(seconds("%d.%m.%Y %H:%M", "1.3.2024 9:05"), Optional(kMarchFirst + 9 * 3600 + 300));
  EXPECT_THAT(seconds("%m/%d/%y %I:%M %p", "3/1/24 12:30 AM"), Optional(kMarchFirst + 1800));
  EXPECT_THAT(seconds("%m/%d/%y %I:%M %p", "3/1/24 12:30 pm"), Optional(kMarchFirst + 45000));
  EXPECT_THAT(seconds("%d %b %Y", "1 Mar 2024"), Optional(kMarchFirst));
  EXPECT_THAT(seconds("%A, %d %B %Y", "Friday, 01 march 2024"), Optional(kMarchFirst));
  EXPECT_THAT(seconds("%Y%m%d%H%M%S", "20240301010203"), Optional(kMarchFirst + 3723));
  EXPECT_THAT(seconds("%d/%b/%Y:%T %z", "01/Mar/2024:02:00:00 +0200"), Optional(kMarchFirst))
      << "a web server's log";
  EXPECT_THAT(seconds("%F  %R", "2024-03-01\t 00:01"), Optional(kMarchFirst + 60));
  EXPECT_THAT(seconds("%-d.%-m.%Y 100%%", "1.3.2024 100%"), Optional(kMarchFirst));
  EXPECT_THAT(seconds("%d.%m.%y", "01.01.69"), Optional(-31536000)) << "1969, as POSIX has it";
  EXPECT_THAT(seconds("%d.%m.%y", "01.01.68"), Optional(3092601600));
}

TEST(TimeFormat, FractionsAndUnits) {
  const TimeFormat format("%Y-%m-%d %H:%M:%S.%f");
  EXPECT_EQ(*format.parse("2024-03-01 00:00:01.25"), (Time{kMarchFirst + 1, 250'000'000}));
  EXPECT_EQ(*format.parse("2024-03-01 00:00:01.25", 1000), (Time{kMarchFirst * 1000 + 1250, 0}));
  EXPECT_EQ(*format.parse("1969-12-31 23:59:59.5"), (Time{-1, 500'000'000}));
}

TEST(TimeFormat, Example) {
  EXPECT_EQ(TimeFormat("%A, %e %B %Y, %I:%M %p %z %%").example(),
            "Tuesday, 31 December 2024, 06:05 PM +0000 %");
  for (const char* format : {"%F %T.%f", "%D %R", "%a %b %d %H:%M:%S %y", "%d %h %Y %z"}) {
    const std::string example = TimeFormat(format).example();
    const auto parsed = TimeFormat(format).parse(example);
    ASSERT_TRUE(parsed) << example;
    EXPECT_EQ(parsed->value / 86400, 1735603200 / 86400) << example;
  }
}

TEST(TimeFormat, RefusesOtherTexts) {
  for (const char* time : {"", "01.03.24", "30.02.2024", "01.13.2024", "00.01.2024", "1.3.2024 ?",
                           "01-03-2024", "a.b.c", "01.03.", "001.3.2024"}) {
    EXPECT_EQ(seconds("%d.%m.%Y", time), std::nullopt) << time;
  }
  EXPECT_EQ(seconds("%d.%m.%Y %H:%M", "1.3.2024 24:00"), std::nullopt);
  EXPECT_EQ(seconds("%d.%m.%Y %H:%M", "1.3.202409:00"), std::nullopt) << "no space";
  EXPECT_EQ(seconds("%d %b %Y", "1 Mai 2024"), std::nullopt);
  EXPECT_EQ(seconds("%F %z", "2024-03-01 CET"), std::nullopt);
}

TEST(TimeFormat, FormatsThatCannotBe) {
  const auto refused = [](const char* format) -> std::string {
    try {
      const TimeFormat made(format);
      return "was not refused";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refused("%d.%m.%Q"), AllOf(HasSubstr("'%d.%m.%Q'"), HasSubstr("%Q is not known")));
  EXPECT_THAT(refused("%d.%m."), HasSubstr("expected a year"));
  EXPECT_THAT(refused("%H:%M"), HasSubstr("expected a year"));
  EXPECT_THAT(refused("%%Y%%m%%d"), HasSubstr("expected a year"));
  EXPECT_THAT(refused("%F %I:%M"), HasSubstr("%I and %p"));
  EXPECT_THAT(refused("%F %"), HasSubstr("% is not known"));
  EXPECT_THAT(refused(""), HasSubstr("expected a year"));
}

TEST_F(PreprocessTest, TimesInAFormat) {
  options_.ingest.time_format.emplace("%d.%m.%Y");
  const auto dataset = run_csv("user,item,time\n1,b,02.03.2024\n1,a,1.3.2024\n");
  EXPECT_THAT(items(*dataset, 0), ElementsAre("a", "b"));
  EXPECT_THAT(dataset->user(0).timestamps, ElementsAre(kMarchFirst, kMarchFirst + 86400));
  EXPECT_EQ(dataset->manifest().time_units_per_second, 1);
  EXPECT_THAT(refused_csv("user,item,time\n1,b,02.03.2024\n1,a,2024-03-01\n"),
              HasSubstr("in:3: column time is '2024-03-01'; expected a time in --time-format "
                        "'%d.%m.%Y', such as 31.12.2024"));
  EXPECT_THAT(refused_csv("user,item,time\n1,b,1709251200\n"), HasSubstr("in:2: column time"));
}

}  // namespace
}  // namespace seqfuse::data::data_time_format_test
