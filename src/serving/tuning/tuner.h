// The fusion search: first the scheme, then the tiles of its generated kernels.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "serving/tuning/scheme_search.h"
#include "serving/tuning/timer.h"
#include "tuning/measurement.h"

namespace seqfuse::serving {

struct TuneOptions {
  Strategy strategy = Strategy::boosted;
  int64_t budget = 14;  // whole programs that are measured: 2 % of the legal ones
  std::optional<double>
      seconds;  // at most, from the Tuner's construction; the best so far is then the result
  uint64_t seed = 1;
  bool tiles = true;  // the second stage
};

struct TuneResult {
  int64_t scheme = 0;  // of the best program that was measured; 0: none
  SegmentChoices choices;
  double milliseconds = 0;
  std::optional<double> default_milliseconds;
  int64_t programs = 0, segments = 0;          // measured now
  int64_t reused = 0;                          // of those known before
  int64_t wrong = 0, failed = 0, timeout = 0;  // of all measurements now
  std::vector<double> sum_errors;  // of programs by sums of their segments: expected / measured - 1
  bool stopped = false;            // by the user
  bool out_of_time = false;
  bool confirmed = false;  // the result and the default were measured once more, after each other
};

class Tuner {
 public:
  using Clock = std::chrono::steady_clock;
  using Keep = std::function<void(const tuning::Measurement&)>;
  using Report = std::function<void(int64_t done, int64_t of, const std::string& detail)>;

  // known: measurements of this setting and origin that are not made again. keep: gets each measurement as
  // soon as it is made. report: a line for people after each. now: the clock of --seconds. References must
  // outlive this object.
  Tuner(Timer& timer, const tuning::Setting& setting, const tuning::Origin& origin,
        const TuneOptions& options, std::vector<tuning::Measurement> known, Keep keep,
        Report report, std::function<Clock::time_point()> now = Clock::now)
      : timer_(timer),
        setting_(setting),
        origin_(origin),
        options_(options),
        known_(std::move(known)),
        keep_(std::move(keep)),
        report_(std::move(report)),
        now_(std::move(now)) {}

  TuneResult run();
  // For the Timer, which may then give up a measurement: time is out, and there is a result.
  bool past_deadline() const { return result_.scheme != 0 && !time_left(); }

 private:
  struct Ended {};  // thrown when time is out or the user stops

  double elapsed() const;
  bool time_left() const;
  // Of a share of what the search may take; the rest of the time is for confirm().
  bool search_time_left(double share = 1) const;
  void reuse(SchemeSearch& search, SegmentTimes& segments);
  void measure_segments(SegmentTimes& segments);
  void measure_default(SchemeSearch& search);
  void search_schemes(SchemeSearch& search, const SegmentTimes& segments);
  void choose_tiles();
  void confirm();
  Timing measure_scheme(int64_t scheme, const SegmentChoices& choices,
                        std::optional<double> expected);
  Timing measure_segment(fusion::Segment segment, const std::string& choice);
  Timing measured(const std::optional<Timing>& timing);
  void record(tuning::Measurement measurement, const Timing& timing);
  void take(int64_t scheme, const SegmentChoices& choices, double milliseconds);
  void report(int64_t done, int64_t of, const std::string& what);

  Timer& timer_;
  const tuning::Setting& setting_;
  const tuning::Origin& origin_;
  const TuneOptions options_;
  std::vector<tuning::Measurement> known_;
  Keep keep_;
  Report report_;
  std::function<Clock::time_point()> now_;
  Clock::time_point start_ = now_();
  bool timer_started_ = false;     // by the first measurement, which takes longer
  std::vector<double> durations_;  // seconds that each later whole program took
  TuneResult result_;
  std::set<std::pair<int, int>> known_segments_;  // not to be measured again
  std::set<int64_t> known_programs_;
  std::map<int64_t, double> programs_;  // times of those with default tiles
};

}  // namespace seqfuse::serving
