#include "serving/tuning/tuner.h"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/codegen/row_kernel.h"
#include "fusion/legality.h"
#include "serving/tuning/recorded_timer.h"

namespace seqfuse::serving {
namespace {

using fusion::Scheme;
using tuning::Measurement;
using tuning::Status;

constexpr double kShareOfSchemes = 0.65;  // of --seconds, where there are tiles to choose too
constexpr double kWorthChanging =
    0.99;                         // a tile must take at most this share of the default's time
constexpr size_t kConfirmed = 3;  // best programs that are measured once more
constexpr double kConfirmations = kConfirmed + 2;  // beside them the default and what has tiles

// Legal segments, operators alone among them, as programs of legal_programs() have them.
std::vector<fusion::Segment> all_segments() {
  std::vector<fusion::Segment> segments;
  for (int first = 0; first < fusion::kOps; ++first) {
    for (int last = first; last < fusion::kOps; ++last) {
      const fusion::Segment segment{first, last};
      if (!segment.fused() || fusion::template_of(segment, fusion::Mha::written_by_hand) != nullptr)
        segments.push_back(segment);
    }
  }
  return segments;
}

std::string text_of(const SegmentChoices& choices) {
  std::string text;
  for (const auto& [segment, choice] : choices)
    text += (text.empty() ? "" : ", ") + segment + ": " + choice;
  return text;
}

}  // namespace

double Tuner::elapsed() const {
  return std::chrono::duration<double>(now_() - start_).count();
}

bool Tuner::time_left() const {
  return !options_.seconds || elapsed() < *options_.seconds;
}

bool Tuner::search_time_left(double share) const {
  if (!options_.seconds) return true;
  std::vector<double> sorted = durations_;
  std::sort(sorted.begin(), sorted.end());
  const double typical = sorted.empty() ? 0 : sorted[sorted.size() / 2];
  return elapsed() < share * (*options_.seconds - kConfirmations * typical);
}

TuneResult Tuner::run() {
  SchemeSearch search(options_.strategy, setting_, options_.seed);
  SegmentTimes segments;
  const bool uses_segments =
      options_.strategy == Strategy::boosted || options_.strategy == Strategy::exhaustive;
  try {
    reuse(search, segments);
    measure_default(search);
    if (uses_segments) {
      measure_segments(segments);
      search.use_segments(segments);
    }
    search_schemes(search, segments);
    if (options_.tiles) choose_tiles();
  } catch (const Ended&) {
  }
  if (!result_.stopped) {
    try {
      confirm();
    } catch (const Ended&) {
    }
  }
  return result_;
}

void Tuner::record(Measurement measurement, const Timing& timing) {
  measurement.setting = setting_;
  measurement.origin = origin_;
  measurement.date = tuning::now_as_date();
  measurement.status = timing.status;
  if (timing.status == Status::ok) measurement.milliseconds = timing.milliseconds;
  if (timing.status == Status::wrong) ++result_.wrong;
  if (timing.status == Status::failed) ++result_.failed;
  if (timing.status == Status::timeout) ++result_.timeout;
  keep_(measurement);
}

// None: the timer gave up, because time is out or the user stops.
Timing Tuner::measured(const std::optional<Timing>& timing) {
  if (timing) return *timing;
  if (past_deadline()) {
    result_.out_of_time = true;
  } else {
    result_.stopped = true;
  }
  throw Ended();
}

Timing Tuner::measure_scheme(int64_t scheme, const SegmentChoices& choices,
                             std::optional<double> expected) {
  const double start = elapsed();
  Timing timing = measured(timer_.scheme(scheme, choices));
  // The first one starts the process that measures.
  if (timing.status == Status::ok && timer_started_) durations_.push_back(elapsed() - start);
  timer_started_ = true;
  Measurement measurement;
  measurement.scheme = scheme;
  measurement.config = config_of(text_of(choices), timing);
  measurement.predicted = expected;
  record(std::move(measurement), timing);
  return timing;
}

Timing Tuner::measure_segment(fusion::Segment segment, const std::string& choice) {
  if (!search_time_left()) {
    result_.out_of_time = true;
    throw Ended();
  }
  Timing timing = measured(timer_.segment(segment, choice));
  timer_started_ = true;
  Measurement measurement;
  measurement.segment = segment;
  measurement.config = config_of(choice, timing);
  record(std::move(measurement), timing);
  ++result_.segments;
  return timing;
}

void Tuner::take(int64_t scheme, const SegmentChoices& choices, double milliseconds) {
  if (choices.empty()) programs_[scheme] = milliseconds;
  if (result_.scheme != 0 && milliseconds >= result_.milliseconds) return;
  result_.scheme = scheme;
  result_.choices = choices;
  result_.milliseconds = milliseconds;
}

void Tuner::report(int64_t done, int64_t of, const std::string& what) {
  std::string best = "nothing measured yet";
  if (result_.scheme != 0) {
    best = fmt::format("best {:.4g} ms ({})", result_.milliseconds, result_.scheme);
    if (result_.default_milliseconds)
      best += fmt::format(", default {:.4g}", *result_.default_milliseconds);
  }
  report_(done, of, fmt::format("{}; {}", best, what));
}

void Tuner::reuse(SchemeSearch& search, SegmentTimes& segments) {
  for (const Measurement& m : known_) {
    if (!has_default_choices(m)) continue;
    ++result_.reused;
    if (m.segment) {
      const std::pair key{m.segment->first, m.segment->last};
      known_segments_.insert(key);
      if (m.milliseconds) segments.set(*m.segment, *m.milliseconds);
    } else {
      search.observe(*m.scheme, m.milliseconds);
      known_programs_.insert(*m.scheme);
      if (!m.milliseconds) continue;
      take(*m.scheme, {}, *m.milliseconds);
      if (*m.scheme == default_program()) result_.default_milliseconds = m.milliseconds;
    }
  }
}

void Tuner::measure_default(SchemeSearch& search) {
  const int64_t scheme = default_program();
  if (known_programs_.contains(scheme) || options_.budget < 1) return;
  const Timing timing = measure_scheme(scheme, {}, std::nullopt);
  ++result_.programs;
  known_programs_.insert(scheme);
  const bool ok = timing.status == Status::ok;
  search.observe(scheme, ok ? std::optional(timing.milliseconds) : std::nullopt);
  if (ok) {
    result_.default_milliseconds = timing.milliseconds;
    take(scheme, {}, timing.milliseconds);
  }
  report(1, options_.budget,
         ok ? "the default"
            : fmt::format("the default is {}: {}", name_of(timing.status), timing.note));
}

void Tuner::measure_segments(SegmentTimes& segments) {
  const std::vector<fusion::Segment> all = all_segments();
  for (size_t i = 0; i < all.size(); ++i) {
    if (known_segments_.contains({all[i].first, all[i].last})) continue;
    const Timing timing = measure_segment(all[i], "");
    if (timing.status == Status::ok) segments.set(all[i], timing.milliseconds);
    const std::string what = timing.status == Status::ok
                                 ? fmt::format("{:.4g} ms", timing.milliseconds)
                                 : name_of(timing.status) + (": " + timing.note);
    report(static_cast<int64_t>(i) + 1, static_cast<int64_t>(all.size()),
           fmt::format("segment {}: {}", fusion::name_of(all[i]), what));
  }
}

void Tuner::search_schemes(SchemeSearch& search, const SegmentTimes& segments) {
  const double share = options_.tiles ? kShareOfSchemes : 1;
  const auto programs = [&] { return static_cast<int64_t>(known_programs_.size()); };
  while (programs() < options_.budget && search_time_left(share)) {
    const auto proposal = search.next();
    if (!proposal) break;
    const Timing timing = measure_scheme(proposal->scheme, {}, proposal->expected);
    ++result_.programs;
    known_programs_.insert(proposal->scheme);
    const bool ok = timing.status == Status::ok;
    search.observe(proposal->scheme, ok ? std::optional(timing.milliseconds) : std::nullopt);
    std::string what = fmt::format("{} {}", proposal->scheme, name_of(timing.status));
    if (ok) {
      take(proposal->scheme, {}, timing.milliseconds);
      what = fmt::format("{} takes {:.4g} ms", proposal->scheme, timing.milliseconds);
      if (const auto sum = segments.sum(proposal->scheme, setting_.layers))
        result_.sum_errors.push_back(*sum / timing.milliseconds - 1);
    } else {
      what += ": " + timing.note;
    }
    report(programs(), options_.budget, what);
  }
}

void Tuner::choose_tiles() {
  if (result_.scheme == 0) return;
  SegmentChoices chosen;
  for (const fusion::Segment& segment : Scheme::from_number(result_.scheme).segments()) {
    const std::vector<std::string> choices = timer_.choices(segment);
    if (choices.size() < 2) continue;
    const Timing standard = measure_segment(segment, choices[0]);
    if (standard.status != Status::ok) continue;
    double best = standard.milliseconds * kWorthChanging;
    for (size_t i = 1; i < choices.size(); ++i) {
      const Timing timing = measure_segment(segment, choices[i]);
      if (timing.status == Status::ok && timing.milliseconds < best) {
        best = timing.milliseconds;
        chosen[fusion::name_of(segment)] = choices[i];
      }
      report(static_cast<int64_t>(i) + 1, static_cast<int64_t>(choices.size()),
             fmt::format("tiles of {}: {:.4g} ms, default {:.4g}", fusion::name_of(segment),
                         std::min(best, standard.milliseconds), standard.milliseconds));
    }
  }
  if (chosen.empty()) return;
  const Timing timing = measure_scheme(result_.scheme, chosen, std::nullopt);
  if (timing.status == Status::ok) take(result_.scheme, chosen, timing.milliseconds);
}

// The fastest of several measurements is also the luckiest: the best programs are measured once more, beside the
// default, and what is fastest then is the result.
void Tuner::confirm() {
  if (result_.scheme == 0) return;
  struct Candidate {
    int64_t scheme;
    SegmentChoices choices;
  };
  std::vector<Candidate> candidates{{default_program(), {}}};
  std::vector<std::pair<double, int64_t>> fastest;
  for (const auto& [scheme, time] : programs_) fastest.emplace_back(time, scheme);
  std::sort(fastest.begin(), fastest.end());
  if (fastest.size() > kConfirmed) fastest.resize(kConfirmed);
  for (const auto& [time, scheme] : fastest) {
    if (scheme != default_program()) candidates.push_back({scheme, {}});
  }
  if (!result_.choices.empty()) candidates.push_back({result_.scheme, result_.choices});
  std::optional<double> best;
  TuneResult confirmed = result_;
  for (const Candidate& candidate : candidates) {
    if (candidates.size() == 1) break;  // the default, by which nothing else is chosen
    if (!time_left()) {
      result_.out_of_time = true;
      return;
    }
    const Timing timing = measure_scheme(candidate.scheme, candidate.choices, std::nullopt);
    if (timing.status != Status::ok) continue;
    if (candidate.scheme == default_program() && candidate.choices.empty())
      confirmed.default_milliseconds = timing.milliseconds;
    if (best && timing.milliseconds >= *best) continue;
    best = timing.milliseconds;
    confirmed.scheme = candidate.scheme;
    confirmed.choices = candidate.choices;
    confirmed.milliseconds = timing.milliseconds;
  }
  result_.confirmed = true;
  if (!best) return;
  result_.scheme = confirmed.scheme;
  result_.choices = confirmed.choices;
  result_.milliseconds = confirmed.milliseconds;
  result_.default_milliseconds = confirmed.default_milliseconds;
}

}  // namespace seqfuse::serving
