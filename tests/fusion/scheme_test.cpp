// Schemes as numbers, characters, segments and cuts.
#include "fusion/scheme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/error.h"
#include "fusion/scheme_text.h"

namespace seqfuse::scheme_test {
namespace {

using namespace fusion;
using testing::HasSubstr;

void expect_usage_error(const std::function<void()>& call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "no error; expected: " << text;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

std::string line_of(int64_t number) {
  return printed(number, Scheme::from_number(number));
}

TEST(Scheme, PrintsTheSegmentsOfPublishedNumbers) {
  EXPECT_EQ(line_of(6826), "6826 0 2 1 2 3 4");
  EXPECT_EQ(line_of(1365), "1365 0 1 1 4");
  EXPECT_EQ(line_of(16022), "16022 0 3 2 6 9 10 13 14");
  EXPECT_EQ(line_of(21845), "21845 0 0");
  // Positions are one more than the operators that were published for these.
  EXPECT_EQ(line_of(41115), "41115 1 4 3 7 9 10 11 12 14 15");
  EXPECT_EQ(line_of(41200), "41200 1 3 3 7 8 11 12 15");
  EXPECT_EQ(line_of(41088), "41088 1 2 3 7 9 15");
}

// The segments by the definition: runs of equal characters, by a second way.
TEST(Scheme, HasTheRunsOfEqualCharactersOfEveryNumber) {
  for (int64_t number = 0; number <= kMostNumber; ++number) {
    const Scheme scheme = Scheme::from_number(number);
    const std::string text = characters_of(number);
    ASSERT_EQ(text.size(), 16U);
    ASSERT_EQ(scheme.mha() == Mha::written_by_hand, text[0] == '1');
    size_t position = 1;
    for (const Segment& segment : scheme.segments()) {
      ASSERT_EQ(segment.first + 1, static_cast<int>(position)) << text;
      const size_t end = std::min(text.find_first_not_of(text[position], position), size_t{16});
      ASSERT_EQ(segment.last + 1, static_cast<int>(end) - 1) << text;
      for (int op = segment.first; op < segment.last; ++op) ASSERT_FALSE(scheme.cut_after(op));
      ASSERT_TRUE(end == 16 || scheme.cut_after(segment.last)) << text;
      position = end;
    }
    ASSERT_EQ(position, 16U) << text;
  }
}

TEST(Scheme, NumbersCharactersAndSegmentsAreTheSameScheme) {
  std::set<int64_t> numbers;
  for (int64_t number = 0; number <= kMostNumber; ++number) {
    const Scheme scheme = Scheme::from_number(number);
    const bool first_bit = (number >> 14 & 1) != 0;
    const int64_t complement = number ^ 0x7fff;
    ASSERT_EQ(Scheme::from_number(complement), scheme) << number;
    ASSERT_EQ(scheme.number(), first_bit ? complement : number);
    ASSERT_EQ(Scheme::from_string(characters_of(number)), scheme) << number;
    ASSERT_EQ(read_number(characters_of(number)), number);
    ASSERT_EQ(read_number(std::to_string(number)), number);
    ASSERT_EQ(Scheme(scheme.fused_segments(), scheme.mha()), scheme) << number;
    ASSERT_EQ(Scheme(scheme.segments(), scheme.mha()), scheme) << number;
    numbers.insert(scheme.number());
  }
  EXPECT_EQ(numbers.size(), 32768U);
  EXPECT_EQ(*numbers.lower_bound(16384), kFirstListed);
  EXPECT_EQ(*numbers.rbegin(), kLastListed);
}

TEST(Scheme, ReadsWhatItPrints) {
  for (int64_t number = 0; number <= kMostNumber; number += 7) {
    const Scheme scheme = Scheme::from_number(number);
    std::string dashes, words;
    for (const Segment& segment : scheme.fused_segments()) {
      dashes +=
          fmt::format("{}{}-{}", dashes.empty() ? "" : ",", segment.first + 1, segment.last + 1);
      words +=
          fmt::format("{}{} {}", words.empty() ? "" : " ", segment.first + 1, segment.last + 1);
    }
    if (dashes.empty()) dashes = words = "none";
    ASSERT_EQ(Scheme(read_segments(std::vector{dashes}), scheme.mha()), scheme) << dashes;
    ASSERT_EQ(Scheme(read_segments(std::vector{words}), scheme.mha()), scheme) << words;
  }
  const std::vector<std::string> apart{"1", "2", "3-4"};
  EXPECT_EQ(Scheme(read_segments(apart), Mha::by_operators).number(), 6826);
}

TEST(Scheme, DrawsSegmentsInBrackets) {
  EXPECT_EQ(drawn(Scheme::from_number(6826)),
            "[gemm0 bias0+split] [QK mask] softmax PV transpose gemm1 bias1+residual LN1 gemm2 "
            "bias2+GELU gemm3 bias3+residual LN2");
  EXPECT_EQ(drawn(Scheme::from_number(0)),
            "[gemm0 bias0+split QK mask softmax PV transpose gemm1 bias1+residual LN1 gemm2 "
            "bias2+GELU gemm3 bias3+residual LN2]");
}

TEST(Scheme, SaysWhatWasGivenAndExpected) {
  const auto refused = [](const std::string& text, const std::string& message) {
    expect_usage_error([&] { read_number(text); }, message);
    expect_usage_error([&] { read_number(text); },
                       "expected a number from 0 to 65535 or 16 characters 0 or 1");
  };
  refused("65536", "65536 is out of range");
  refused("99999999999999999999", "99999999999999999999 is out of range");
  refused("-1", "character 1 of '-1' is not a digit");
  refused("68x6", "character 3 of '68x6' is not a digit");
  refused(" 6826", "character 1 of ' 6826' is not a digit");
  refused("", "nothing was given");
  refused("0001101010101", "'0001101010101' has 13 characters");
  refused("00011010101010100", "has 17 characters");
  refused("01", "'01' has 2 characters");
  EXPECT_EQ(read_number("10101"), 10101);  // a number that happens to have no other digits
  EXPECT_EQ(read_number("0"), 0);
  expect_usage_error([] { Scheme::from_number(65536); },
                     "the number is 65536; expected 0 to 65535");
  expect_usage_error([] { Scheme::from_number(-1); }, "the number is -1");
  expect_usage_error([] { Scheme::from_string("0101010101010102"); },
                     "character 16 of '0101010101010102' is neither 0 nor 1");
  expect_usage_error([] { Scheme::from_string("0101"); }, "has 4 characters; expected 16");
}

TEST(Scheme, RefusesSegmentsThatAreNone) {
  const auto refused = [](const std::string& text, const std::string& message) {
    expect_usage_error([&] { read_segments(std::vector{text}); }, message);
  };
  refused("", "0 positions");
  refused("1 2 3", "3 positions: '1 2 3'");
  refused("0-2", "has 0-2; expected two operators or more from 1 to 15");
  refused("14-16", "has 14-16");
  refused("1-99999999999", "has 1-16");
  refused("4-4", "has 4-4");
  refused("5-4", "has 5-4");
  refused("1-4,3-5", "has 3-5; expected two operators or more from 5 to 15");
  refused("3-4,1-2", "has 1-2");
  refused("1-x", "has '1-x'; expected positions from 1 to 15 such as 1-2,3-4");
  refused("1 2-3", "has '2-3'");
  refused("gemm0", "has 'gemm0'");
  const std::vector<Segment> beyond{{3, 15}}, twice{{0, 1}, {1, 2}};
  EXPECT_THROW(Scheme(beyond, Mha::by_operators), Error);
  EXPECT_THROW(Scheme(twice, Mha::by_operators), Error);
}

}  // namespace
}  // namespace seqfuse::scheme_test
