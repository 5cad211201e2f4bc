#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "data/synthesize/synthesize_format.h"
#include "data/synthesize/synthesize_kuairand_users.h"

namespace seqfuse::data::synthetic {
namespace {

// 8 April 2022 0:00 to 9 May 2022 0:00 in Beijing, in ms; the second log begins on 22 April.
constexpr int64_t kDay = 86'400'000;
constexpr int64_t kBegin = 1'649'347'200'000;
constexpr int64_t kSecondLog = kBegin + 14 * kDay;
constexpr int64_t kEnd = kBegin + 31 * kDay;

constexpr std::string_view kLogHeader =
    "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,is_"
    "hate,"
    "long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,is_profile_enter,is_"
    "rand,"
    "tab";
constexpr std::string_view kVideoHeader =
    "video_id,author_id,video_type,upload_dt,upload_type,visible_status,video_duration,server_"
    "width,"
    "server_height,music_id,music_type,tag";

enum Label { kClick, kLike, kFollow, kComment, kForward, kHate, kLongView, kProfileEnter, kAll };

// The last label is noise: 1 with this probability, independent of everything else.
constexpr double kProfileEnterRate = 0.3;

// intercept, taste, second taste, appeal, polish, generous, sociable,
// {active degree, follows, fans, friends, registration}
constexpr Mixtures kKuaiRandMixtures = {{
    {-2.2F, 1.8F, .4F, .4F, 0, .3F, 0, {.8F, .3F, 0, 0, -.4F}},         // is_click
    {-4.6F, 1.7F, .6F, .3F, .3F, .5F, 0, {.3F, .4F, 0, .4F, 0}},        // is_like
    {-4.6F, 1.3F, .7F, 0, .4F, 0, .4F, {0, .9F, -.4F, 0, -.4F}},        // is_follow
    {-4.4F, 1.2F, .3F, 0, .4F, 0, .7F, {.3F, 0, .5F, .8F, 0}},          // is_comment
    {-5.0F, 1.4F, .3F, .3F, -.3F, 0, .5F, {0, 0, .6F, .8F, -.3F}},      // is_forward
    {-2.0F, -1.7F, -.4F, -.4F, .3F, -.3F, 0, {-.6F, -.3F, 0, 0, .7F}},  // is_hate
    {-0.3F, 1.4F, .4F, 0, .4F, .3F, 0, {.4F, 0, 0, -.3F, .7F}},         // long_view, if clicked
}};

struct Variant {
  const char* suffix;
  bool parts;             // each log in two files, by user
  double session_events;  // mean
};

struct Reaction {
  std::array<bool, kAll> label;
  int64_t play_time, comment_time, profile_time;  // ms
};

float probability_of(float log_odds) {
  return 1 / (1 + std::exp(-log_odds));
}

class KuaiRandFormat : public Format {
 public:
  KuaiRandFormat(const World& world, const Variant& variant)
      : world_(world),
        variant_(variant),
        rhythm_{.begin = kBegin,
                .end = kEnd,
                .unit = 1000,
                .session_events = variant.session_events,
                .seconds_between = 20,
                .drift_days = 60} {
    for (int64_t day = 0; day <= 31; ++day) {
      dates_[day] = day < 23 ? 20220408 + day : 20220501 + day - 23;
    }
  }

  std::vector<FileSpec> files() const override {
    std::vector<FileSpec> result;
    for (const char* days : {"4_08_to_4_21", "4_22_to_5_08"}) {
      for (const char* part : {"_part1", "_part2"}) {
        if (!variant_.parts && part[5] == '2') continue;
        result.push_back({fmt::format("data/log_standard_{}_{}{}.csv", days, variant_.suffix,
                                      variant_.parts ? part : ""),
                          std::string(kLogHeader)});
      }
    }
    result.push_back(
        {fmt::format("data/user_features_{}.csv", variant_.suffix), kKuaiRandUserHeader});
    result.push_back({fmt::format("data/video_features_basic_{}.csv", variant_.suffix),
                      std::string(kVideoHeader)});
    return result;
  }

  std::vector<LabelInfo> labels() const override {
    return {{"is_click", true},   {"is_like", true},          {"is_follow", true},
            {"is_comment", true}, {"is_forward", true},       {"is_hate", true},
            {"long_view", true},  {"is_profile_enter", false}};
  }

  void append_user(int64_t user, int64_t events, std::vector<std::string>& buffers,
                   Tally& tally) const override {
    const KuaiRandUser features = KuaiRandUser::draw(world_.seed, user);
    const size_t parts = variant_.parts ? 2 : 1;
    features.append_row(user, world_.seed, buffers[2 * parts]);
    const size_t part = variant_.parts && user >= (world_.users + 1) / 2 ? 1 : 0;
    UserProcess process(world_.catalogue, kKuaiRandMixtures, rhythm_, user, events,
                        features.context(), world_.seed);
    for (int64_t i = 0; i < events; ++i) {
      const Event event = process.next();
      const int64_t number = world_.catalogue.number(event.item);
      const int64_t duration = duration_of(number);
      const Reaction reaction = react(event, duration, process.random(), tally);
      std::string& log = buffers[(event.time < kSecondLog ? 0 : parts) + part];
      append_event(user, number, event.time, duration, reaction, process.random(), log);
      tally.transitions += event.follows ? 1 : 0;
    }
    tally.events += events;
  }

  void append_items(int64_t begin, int64_t end, std::string& out) const override {
    constexpr const char* kUploads[] = {"LongImport", "Web", "ShortImport", "Kmovie"};
    for (int64_t number = begin; number < end; ++number) {
      Random random(world_.seed, stream_of(Purpose::item_row, number));
      append(out, number, ",");
      append(out, static_cast<int64_t>(random.below(world_.catalogue.size())), ",");
      append(out, random.below(100) == 0 ? "AD" : "NORMAL", ",2022-04-0");
      append(out, 1 + static_cast<int64_t>(random.below(8)), ",");
      append(out, kUploads[random.below(4)], ",0.0,");
      append(out, duration_of(number), ".0,720.0,1280.0,");
      append(out, static_cast<int64_t>(random.below(10'000'000'000)), ",9.0,");
      append(out, 1 + static_cast<int64_t>(random.below(68)), "\n");
    }
  }

 private:
  // In ms: about 20 s, from 3 s to 2 minutes.
  int64_t duration_of(int64_t number) const {
    const auto words =
        Philox{world_.seed, stream_of(Purpose::duration, 0)}(static_cast<uint64_t>(number));
    return static_cast<int64_t>(20'000 * std::exp(3.6F * (Philox::unit(words[0]) - 0.5F)));
  }

  // Draws the labels, and times that agree with them.
  static Reaction react(const Event& event, int64_t duration, Random& random, Tally& tally) {
    Reaction reaction{};
    std::array<float, kAll> probability;
    for (int label = 0; label < kLabels; ++label) {
      probability[label] = probability_of(event.log_odds[label]);
    }
    probability[kLongView] *= probability[kClick];
    for (int label = kLike; label < kLongView; ++label) {
      reaction.label[label] = Philox::unit(random()) < probability[label];
    }
    // One random number for both, so that a long view implies a click.
    const float u = Philox::unit(random());
    reaction.label[kClick] = u < probability[kClick];
    reaction.label[kLongView] = u < probability[kLongView];
    reaction.label[kProfileEnter] = Philox::unit(random()) < kProfileEnterRate;
    probability[kProfileEnter] = probability[kClick];  // for an AUC near 0.5
    for (int label = 0; label < kAll; ++label) {
      tally.labels[label].add(probability[label], reaction.label[label]);
    }

    // The dataset's definitions: a click in the single-column view is 7 s played or the whole
    // video, a long view 18 s or the whole video.
    const float v = Philox::unit(random());
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(v * static_cast<float>(std::max<int64_t>(0, high - low)));
    };
    const int64_t click = std::min<int64_t>(duration, 7000),
                  view = std::min<int64_t>(duration, 18000);
    reaction.play_time = reaction.label[kLongView] ? between(view, duration)
                         : reaction.label[kClick]  ? between(click, view)
                                                   : between(0, click);
    reaction.comment_time = reaction.label[kComment] ? between(2000, 30000) : 0;
    reaction.profile_time = reaction.label[kProfileEnter] ? between(1000, 20000) : 0;
    return reaction;
  }

  void append_event(int64_t user, int64_t number, int64_t time, int64_t duration,
                    const Reaction& reaction, Random& random, std::string& out) const {
    const int64_t since_begin = time - kBegin;
    append(out, user, ",");
    append(out, number, ",");
    append(out, dates_[since_begin / kDay], ",");
    append(out, since_begin % kDay / 3'600'000 * 100, ",");
    append(out, time, ",");
    for (int label = 0; label <= kLongView; ++label) out += reaction.label[label] ? "1," : "0,";
    append(out, reaction.play_time, ",");
    append(out, duration, ",");
    append(out, reaction.profile_time, ",");
    append(out, reaction.comment_time, ",");
    out += reaction.label[kProfileEnter] ? "1,0," : "0,0,";
    const uint32_t tab = Philox::below(random(), 20);
    append(out, tab < 14 ? 1 : tab < 17 ? 0 : tab - 15, "\n");
  }

  const World& world_;
  const Variant variant_;
  const Rhythm rhythm_;
  std::array<int64_t, 32> dates_;  // of each day, as YYYYMMDD
};

}  // namespace

std::unique_ptr<Format> kuairand_pure_format(const World& world) {
  return std::make_unique<KuaiRandFormat>(world, Variant{"pure", false, 3});
}
std::unique_ptr<Format> kuairand_1k_format(const World& world) {
  return std::make_unique<KuaiRandFormat>(world, Variant{"1k", false, 25});
}
std::unique_ptr<Format> kuairand_27k_format(const World& world) {
  return std::make_unique<KuaiRandFormat>(world, Variant{"27k", true, 25});
}

}  // namespace seqfuse::data::synthetic
