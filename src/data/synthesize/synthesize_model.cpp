#include "data/synthesize/synthesize_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace seqfuse::data::synthetic {
namespace {

constexpr double kExposure = 1.1;    // how strongly taste affects which topics are shown
constexpr double kTransition = 0.3;  // share of events drawn as a successor
constexpr double kTopicSkew = 0.4;   // popularity of topic k: (k + 1) ^ -skew

double unit(uint32_t word) {
  return word * 0x1p-32;
}

// Triangular distribution with mean 0 and variance 1: sufficient for a quality.
float spread(uint32_t word) {
  const double sum = (word & 0xFFFF) + (word >> 16);
  return static_cast<float>((sum * 0x1p-16 - 1) * std::sqrt(6.0));
}

}  // namespace

Catalogue::Catalogue(int64_t size, uint64_t seed) : size_(size), seed_(seed) {
  for (int topic = 0; topic < kTopics; ++topic) {
    log_count_[topic] = std::log(static_cast<double>(count_of(topic) + 1));
  }
  multiplier_ = std::max<int64_t>(1, static_cast<int64_t>(0.618 * static_cast<double>(size)));
  while (std::gcd(multiplier_, size) != 1) ++multiplier_;
}

Catalogue::Item Catalogue::item(int64_t index) const {
  const auto words = Philox{seed_, stream_of(Purpose::item, 0)}(static_cast<uint64_t>(index));
  return {.topic = static_cast<int>(index % kTopics),
          .second_topic = static_cast<int>(Philox::below(words[0], kTopics)),
          .appeal = spread(words[1]),
          .polish = spread(words[2])};
}

int64_t Catalogue::draw(int topic, double u) const {
  // Log-uniform ranks: P(rank) = log((rank + 2) / (rank + 1)) / log(count + 1), Zipf with
  // exponent 1.
  const auto rank = static_cast<int64_t>(std::exp(u * log_count_[topic])) - 1;
  return std::clamp<int64_t>(rank, 0, count_of(topic) - 1) * kTopics + topic;
}

int64_t Catalogue::draw_evenly(int topic, double u) const {
  return static_cast<int64_t>(u * static_cast<double>(count_of(topic))) * kTopics + topic;
}

int64_t Catalogue::count_of(int topic) const {
  return (size_ - topic + kTopics - 1) / kTopics;
}

int64_t Catalogue::successor(int64_t index, uint32_t branch) const {
  const auto words = Philox{seed_, stream_of(Purpose::successor, 0)}(static_cast<uint64_t>(index));
  return draw(static_cast<int>(index % kTopics), unit(words[branch]));
}

int64_t Catalogue::number(int64_t index) const {
  const auto wide = static_cast<unsigned __int128>(index) * static_cast<uint64_t>(multiplier_);
  return static_cast<int64_t>(wide % static_cast<uint64_t>(size_));
}

UserProcess::UserProcess(const Catalogue& catalogue, const Mixtures& mixtures, const Rhythm& rhythm,
                         int64_t user, int64_t events, const Context& context, uint64_t seed)
    : catalogue_(catalogue),
      mixtures_(mixtures),
      rhythm_(rhythm),
      events_(events),
      random_(seed, stream_of(Purpose::events, user)),
      time_(rhythm.begin),
      drift_time_(rhythm.begin) {
  sessions_ =
      std::max<int64_t>(1, std::llround(static_cast<double>(events) / rhythm.session_events));
  // Users with many events have less time between them.
  const double span =
      static_cast<double>(rhythm.end - rhythm.begin) / static_cast<double>(rhythm.unit);
  seconds_between_ = std::min(rhythm.seconds_between, 0.6 * span / static_cast<double>(events));
  for (float& taste : taste_) taste = static_cast<float>(random_.normal());
  drift(0);
  const auto generous = static_cast<float>(random_.normal());
  const auto sociable = static_cast<float>(random_.normal());
  for (int label = 0; label < kLabels; ++label) {
    const LabelMixture& mixture = mixtures[label];
    constant_[label] =
        mixture.intercept + mixture.generous * generous + mixture.sociable * sociable +
        std::inner_product(context.begin(), context.end(), mixture.context.begin(), 0.F);
  }
  if (events <= catalogue.size())
    seen_.assign(std::bit_ceil(static_cast<uint64_t>(2 * events)), -1);
}

void UserProcess::drift(double days) {
  const auto keep = static_cast<float>(std::exp(-days / rhythm_.drift_days));
  const float renew = std::sqrt(1 - keep * keep);
  float sum = 0;
  for (int topic = 0; topic < kTopics; ++topic) {
    if (days > 0)
      taste_[topic] = keep * taste_[topic] + renew * static_cast<float>(random_.normal());
    sum +=
        static_cast<float>(std::pow(topic + 1, -kTopicSkew) * std::exp(kExposure * taste_[topic]));
    cumulative_[topic] = sum;
  }
}

void UserProcess::begin_session() {
  // Sessions begin at random in equal parts of the time; each holds an equal share of the remaining
  // events, plus or minus half.
  const double part =
      static_cast<double>(rhythm_.end - rhythm_.begin) / static_cast<double>(sessions_);
  const auto start = rhythm_.begin + static_cast<int64_t>((session_ + random_.unit() * 0.9) * part);
  time_ = std::max(time_ + rhythm_.unit, start);
  ++session_;
  const double share =
      static_cast<double>(events_ - done_) / std::max<int64_t>(1, sessions_ - session_ + 1);
  session_left_ =
      session_ >= sessions_ ? events_ - done_ : std::llround(share * (0.5 + random_.unit()));
  session_left_ = std::clamp<int64_t>(session_left_, 1, events_ - done_);
  previous_ = -1;
  const double days =
      static_cast<double>(time_ - drift_time_) / static_cast<double>(rhythm_.unit) / 86400;
  if (days >= 1) {
    drift(days);
    drift_time_ = time_;
  }
}

int UserProcess::draw_topic() {
  const float u = Philox::unit(random_()) * cumulative_.back();
  const auto topic = std::ranges::upper_bound(cumulative_, u) - cumulative_.begin();
  return static_cast<int>(std::min<int64_t>(topic, kTopics - 1));
}

bool UserProcess::see(int64_t item) {
  if (seen_.empty()) return true;
  const uint64_t mask = seen_.size() - 1;
  uint64_t slot = (static_cast<uint64_t>(item) * 0x9E3779B97F4A7C15ULL >> 20) & mask;
  for (; seen_[slot] >= 0; slot = (slot + 1) & mask) {
    if (seen_[slot] == item) return false;
  }
  seen_[slot] = item;
  return true;
}

int64_t UserProcess::draw_item(bool& follows) {
  follows = false;
  if (previous_ >= 0 && unit(random_()) < kTransition) {
    const uint32_t word = random_();
    const uint32_t branch = word < 0x9999'9999 ? 0 : word < 0xE666'6666 ? 1 : 2;  // 60, 30, 10 %
    const int64_t item = catalogue_.successor(previous_, branch);
    if (see(item)) {
      follows = true;
      return item;
    }
  }
  // If the topic's popular items are seen, draw from the whole topic; if nearly everything is seen,
  // take the next unseen item.
  int64_t item = 0;
  for (int attempt = 0; attempt < 16; ++attempt) {
    const int topic = draw_topic();
    const double u = unit(random_());
    item = attempt < 8 ? catalogue_.draw(topic, u) : catalogue_.draw_evenly(topic, u);
    if (see(item)) return item;
  }
  do item = (item + 1) % catalogue_.size();
  while (!see(item));
  return item;
}

Event UserProcess::next() {
  if (session_left_ == 0) begin_session();
  Event event{};
  event.item = draw_item(event.follows);
  event.time = std::min(time_, rhythm_.end - 1);
  const Catalogue::Item item = catalogue_.item(event.item);
  const float taste = taste_[item.topic], second_taste = taste_[item.second_topic];
  for (int label = 0; label < kLabels; ++label) {
    const LabelMixture& mixture = mixtures_[label];
    event.log_odds[label] = constant_[label] + mixture.taste * taste +
                            mixture.second_taste * second_taste + mixture.appeal * item.appeal +
                            mixture.polish * item.polish;
  }
  previous_ = event.item;
  const double gap = -std::log(1 - unit(random_())) * seconds_between_;
  time_ += static_cast<int64_t>(gap * static_cast<double>(rhythm_.unit)) + 1;
  --session_left_;
  ++done_;
  return event;
}

}  // namespace seqfuse::data::synthetic
