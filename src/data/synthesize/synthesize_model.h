// The generative model of synthesized logs: which items users see, when, and how they react.
//
// Items have a main and a second topic and two qualities. Users have tastes for topics, which drift
// over time, two habits, and a context that the dataset contains. The topic of the next item is
// drawn in proportion to its popularity times exp(kExposure * taste), the item within the topic by
// Zipf's law; some items are instead one of the fixed successors of the previous item. The log-odds
// of a reaction are a linear mixture of all of these, different for each label. Topics, tastes,
// qualities and habits are never written out: a model can only infer them from sequences.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace seqfuse::data::synthetic {

inline constexpr int kTopics = 12;
inline constexpr int kContexts = 5;  // features of a user; unused ones are 0
inline constexpr int kLabels = 7;    // learnable ones

using Context = std::array<float, kContexts>;  // each about mean 0, variance 1
using LogOdds = std::array<float, kLabels>;

// Weights of one label's log-odds.
struct LabelMixture {
  float intercept;
  float taste, second_taste;  // of the item's topics
  float appeal, polish;       // qualities of the item
  float generous, sociable;   // habits of the user
  Context context;
};
using Mixtures = std::array<LabelMixture, kLabels>;

// A random stream for one purpose and one user, item or other index below 2^48.
enum class Purpose : uint64_t { events, context, item, successor, duration, user_row, item_row };
inline uint64_t stream_of(Purpose purpose, int64_t index) {
  return (static_cast<uint64_t>(purpose) + 1) << 48 | static_cast<uint64_t>(index);
}

// Items [0, size), computed on demand. Item j has main topic j % kTopics and popularity rank
// j / kTopics within it.
class Catalogue {
 public:
  Catalogue(int64_t size, uint64_t seed);  // size >= kTopics

  struct Item {
    int topic, second_topic;
    float appeal, polish;  // mean 0, variance 1
  };

  int64_t size() const { return size_; }
  Item item(int64_t index) const;
  // The item of the topic at quantile u in [0, 1) of its popularity.
  int64_t draw(int topic, double u) const;
  int64_t draw_evenly(int topic, double u) const;  // regardless of popularity
  // Items of the same topic that tend to follow; branch in [0, 3).
  int64_t successor(int64_t index, uint32_t branch) const;
  // The item's number in the dataset: a permutation of [0, size), so that numbers reveal neither
  // topic nor popularity.
  int64_t number(int64_t index) const;

 private:
  int64_t count_of(int topic) const;  // items of the topic

  int64_t size_, multiplier_;
  uint64_t seed_;
  std::array<double, kTopics> log_count_;  // log(items of the topic + 1)
};

// Timing of a dataset's events.
struct Rhythm {
  int64_t begin, end;      // of all events
  int64_t unit;            // time units per second
  double session_events;   // mean events of a session
  double seconds_between;  // mean, of events in a session
  double drift_days;       // time until a taste keeps 1/e of itself
};

struct Event {
  int64_t item;  // index in the catalogue
  int64_t time;
  LogOdds log_odds;
  bool follows;  // drawn as a successor of the previous event
};

// The events of one user in order of time.
class UserProcess {
 public:
  UserProcess(const Catalogue& catalogue, const Mixtures& mixtures, const Rhythm& rhythm,
              int64_t user, int64_t events, const Context& context, uint64_t seed);

  Event next();
  // The user's random stream, for drawing reactions to the event.
  Random& random() { return random_; }

 private:
  void begin_session();
  void drift(double days);
  int64_t draw_item(bool& follows);
  int draw_topic();
  bool see(int64_t item);  // false if seen before

  const Catalogue& catalogue_;
  const Mixtures& mixtures_;
  const Rhythm& rhythm_;
  const int64_t events_;
  Random random_;
  LogOdds constant_;  // the part that does not depend on the item
  std::array<float, kTopics> taste_;
  std::array<float, kTopics> cumulative_;  // of topics' exposure
  int64_t done_ = 0, session_left_ = 0, session_ = 0, sessions_;
  int64_t time_, drift_time_, previous_ = -1;
  double seconds_between_;
  std::vector<int64_t> seen_;  // hash set, -1: free; empty if there are fewer items than events
};

}  // namespace seqfuse::data::synthetic
