#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>

#include "data/synthesize/synthesize_format.h"

namespace seqfuse::data::synthetic {
namespace {

// The years of the original: 25 April 2000 to 28 February 2003, in seconds.
constexpr Rhythm kRhythm = {.begin = 956'620'800,
                            .end = 1'046'390'400,
                            .unit = 1,
                            .session_events = 80,
                            .seconds_between = 25,
                            .drift_days = 1500};

// Only the first label is used: log-odds of a rating of 4 or more. Context: sex, age, occupation.
constexpr Mixtures kMovieLensMixtures = {
    {{-.6F, 1.4F, .6F, .7F, 0, .6F, 0, {.3F, .5F, .4F, 0, 0}}}};

// Log-odds of at least 2, 3, 4 and 5, relative to those of 4.
constexpr float kThresholds[] = {3.6F, 2.0F, 0.F, -2.2F};

constexpr int kAges[] = {1, 18, 25, 35, 45, 50, 56};
constexpr const char* kGenres[] = {
    "Action", "Adventure", "Animation", "Comedy",  "Crime",  "Documentary", "Drama", "Fantasy",
    "Horror", "Musical",   "Mystery",   "Romance", "Sci-Fi", "Thriller",    "War",   "Western"};

struct Viewer {
  bool male;
  uint64_t age, occupation, zip;  // age: index of a group

  static Viewer draw(uint64_t seed, int64_t user) {
    Random random(seed, stream_of(Purpose::context, user));
    return {.male = random.unit() < 0.72,
            .age = random.below(std::size(kAges)),
            .occupation = random.below(21),
            .zip = random.below(3400) * 29};
  }

  Context context() const {
    return {male ? .6F : -1.6F, (static_cast<float>(age) - 3) / 2,
            // No order in occupations: 0, 13, 5, 18, ... of 21.
            (static_cast<float>(occupation * 13 % 21) - 10) / 6, 0, 0};
  }
};

class MovieLensFormat : public Format {
 public:
  explicit MovieLensFormat(const World& world) : world_(world) {}

  std::vector<FileSpec> files() const override {
    return {{"ratings.dat", ""}, {"users.dat", ""}, {"movies.dat", ""}};
  }

  std::vector<LabelInfo> labels() const override { return {{"rating >= 4", true}}; }

  void append_user(int64_t user, int64_t events, std::vector<std::string>& buffers,
                   Tally& tally) const override {
    const Viewer viewer = Viewer::draw(world_.seed, user);
    buffers[1] += fmt::format("{}::{}::{}::{}::{:05}\n", user + 1, viewer.male ? 'M' : 'F',
                              kAges[viewer.age], viewer.occupation, viewer.zip);
    UserProcess process(world_.catalogue, kMovieLensMixtures, kRhythm, user, events,
                        viewer.context(), world_.seed);
    for (int64_t i = 0; i < events; ++i) {
      const Event event = process.next();
      const float log_odds = event.log_odds[0];
      const float u = Philox::unit(process.random()());
      const float noise = std::log(u / (1 - u));  // logistic; -inf at 0: the best rating
      int64_t rating = 1;
      for (const float threshold : kThresholds) rating += log_odds + threshold > noise ? 1 : 0;
      tally.labels[0].add(1 / (1 + std::exp(-log_odds)), rating >= 4);
      std::string& out = buffers[0];
      append(out, user + 1, "::");
      append(out, world_.catalogue.number(event.item) + 1, "::");
      append(out, rating, "::");
      append(out, event.time, "\n");
      tally.transitions += event.follows ? 1 : 0;
    }
    tally.events += events;
  }

  void append_items(int64_t begin, int64_t end, std::string& out) const override {
    for (int64_t number = begin; number < end; ++number) {
      Random random(world_.seed, stream_of(Purpose::item_row, number));
      out += fmt::format("{}::Film {} ({})::{}\n", number + 1, number + 1, 1930 + random.below(71),
                         kGenres[random.below(std::size(kGenres))]);
    }
  }

 private:
  const World& world_;
};

}  // namespace

std::unique_ptr<Format> ml_1m_format(const World& world) {
  return std::make_unique<MovieLensFormat>(world);
}

}  // namespace seqfuse::data::synthetic
