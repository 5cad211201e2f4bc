#include "data/synthesize/synthesize_kuairand_users.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "data/synthesize/synthesize_format.h"

namespace seqfuse::data::synthetic {
namespace {

struct Level {
  const char* name;
  double share;
  float score;
};
constexpr Level kActiveDegrees[] = {
    {"full_active", .658, .7F},   {"high_active", .226, -.9F}, {"middle_active", .078, -1.9F},
    {"2_14_day_new", .023, -1.F}, {"low_active", .011, -2.7F}, {"single_low_active", .003, -3.F},
    {"UNKNOWN", .001, 0.F}};

// Values from `least` up to the next range.
struct Range {
  int64_t least;
  const char* name;
};
constexpr Range kFollows[] = {{0, "0"},
                              {1, "\"(0,10]\""},
                              {11, "\"(10,50]\""},
                              {51, "\"(50,100]\""},
                              {101, "\"(100,150]\""},
                              {151, "\"(150,250]\""},
                              {251, "\"(250,500]\""},
                              {501, "500+"}};
constexpr Range kFans[] = {{0, "0"},
                           {1, "\"[1,10)\""},
                           {10, "\"[10,100)\""},
                           {100, "\"[100,1k)\""},
                           {1000, "\"[1k,5k)\""},
                           {5000, "\"[5k,1w)\""},
                           {10000, "\"[1w,10w)\""},
                           {100000, "\"[10w,100w)\""}};
constexpr Range kFriends[] = {{0, "0"},
                              {1, "\"[1,5)\""},
                              {5, "\"[5,30)\""},
                              {30, "\"[30,60)\""},
                              {60, "\"[60,120)\""},
                              {120, "\"[120,250)\""},
                              {250, "250+"}};
constexpr Range kRegisterDays[] = {{8, "8-14"},      {15, "15-30"},  {31, "31-60"},
                                   {61, "61-90"},    {91, "91-180"}, {181, "181-365"},
                                   {366, "366-730"}, {731, "730+"}};

constexpr int64_t kOneHotSizes[] = {2, 7, 50, 1471, 15, 34, 3, 118, 454, 7, 5, 5, 2, 2, 2, 2, 2, 2};

int range_of(std::span<const Range> ranges, int64_t value) {
  const auto above = std::ranges::upper_bound(ranges, value, {}, &Range::least);
  return static_cast<int>(above - ranges.begin()) - 1;
}

int64_t log_normal(Random& random, double median, double sigma, int64_t most) {
  const double value = median * std::exp(sigma * random.normal()) - 0.5;
  return std::clamp<int64_t>(std::llround(value), 0, most);
}

}  // namespace

KuaiRandUser KuaiRandUser::draw(uint64_t seed, int64_t user) {
  Random random(seed, stream_of(Purpose::context, user));
  KuaiRandUser result{};
  double u = random.unit();
  while (result.active_degree + 1 < std::ssize(kActiveDegrees) &&
         u >= kActiveDegrees[result.active_degree].share) {
    u -= kActiveDegrees[result.active_degree++].share;
  }
  result.follows = log_normal(random, 130, 1.6, 5000);
  result.fans = log_normal(random, 55, 1.9, 900000);
  result.friends = std::min(result.follows, log_normal(random, 20, 2, 3000));
  result.register_days = 8 + log_normal(random, 1300, 0.9, 4000);
  return result;
}

Context KuaiRandUser::context() const {
  const auto score = [](std::span<const Range> ranges, int64_t value, float mean, float deviation) {
    return (static_cast<float>(range_of(ranges, value)) - mean) / deviation;
  };
  return {kActiveDegrees[active_degree].score, score(kFollows, follows, 4.3F, 1.9F),
          score(kFans, fans, 2.2F, 1.F), score(kFriends, friends, 2.4F, 1.7F),
          score(kRegisterDays, register_days, 6.6F, .8F)};
}

void KuaiRandUser::append_row(int64_t user, uint64_t seed, std::string& out) const {
  Random random(seed, stream_of(Purpose::user_row, user));
  append(out, user, ",");
  append(out, kActiveDegrees[active_degree].name, ",0,");
  append(out, random.below(5) == 0 ? 1 : -124, ",");
  append(out, fans > 5 ? 1 : 0, ",");
  append(out, follows, ",");
  append(out, kFollows[range_of(kFollows, follows)].name, ",");
  append(out, fans, ",");
  append(out, kFans[range_of(kFans, fans)].name, ",");
  append(out, friends, ",");
  append(out, kFriends[range_of(kFriends, friends)].name, ",");
  append(out, register_days, ",");
  append(out, kRegisterDays[range_of(kRegisterDays, register_days)].name, "");
  for (size_t feature = 0; feature < std::size(kOneHotSizes); ++feature) {
    out += ',';
    // The dataset writes these as decimals.
    const bool decimal = feature == 4 || feature >= 12;
    append(out, static_cast<int64_t>(random.below(kOneHotSizes[feature])), decimal ? ".0" : "");
  }
  out += '\n';
}

}  // namespace seqfuse::data::synthetic
