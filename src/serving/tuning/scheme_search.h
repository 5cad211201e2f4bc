// Which scheme to measure next, of all legal programs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "fusion/scheme.h"
#include "tuning/measurement.h"
#include "tuning/predictor.h"

namespace seqfuse::serving {

enum class Strategy : int8_t {
  boosted,     // what a predictor expects to be fastest; it learns from each measurement
  random,      // uniform
  annealing,   // neighbours of a scheme that gets better, at first also worse
  exhaustive,  // all, in order
};

// Throws UsageError for another name.
Strategy strategy_named(std::string_view name);
const char* name_of(Strategy strategy);

// The numbers of all legal programs, ascending.
const std::vector<int64_t>& legal_programs();
// fused() of models/bert as a scheme.
int64_t default_program();

// Times of segments, in milliseconds of one layer. By operators, both ends included.
class SegmentTimes {
 public:
  void set(fusion::Segment segment, double milliseconds);
  // The sum over all segments of a program; nothing if one of them has no time.
  std::optional<double> sum(int64_t scheme, int64_t layers) const;
  bool empty() const { return times_.empty(); }

 private:
  std::map<std::pair<int, int>, double> times_;
};

class SchemeSearch {
 public:
  SchemeSearch(Strategy strategy, const tuning::Setting& setting, uint64_t seed);

  // For `boosted`: expected times are sums of segments, times what the predictor learns that they are off
  // by. Without segments it predicts the times themselves.
  void use_segments(const SegmentTimes& times);

  struct Proposal {
    int64_t scheme = 0;
    std::optional<double> expected;  // milliseconds
  };
  // One that was not measured; none: all were.
  std::optional<Proposal> next();
  // The result of a measurement; no time: it failed.
  void observe(int64_t scheme, std::optional<double> milliseconds);

 private:
  bool known(int64_t scheme) const { return observed_.contains(scheme); }
  std::vector<int64_t> unknown() const;
  Proposal by_prediction();
  int64_t by_annealing();
  int64_t neighbour(int64_t scheme);
  void learn();
  std::optional<double> expected(int64_t scheme) const;

  Strategy strategy_;
  tuning::Setting setting_;
  Random random_;
  SegmentTimes segments_;
  std::map<int64_t, std::optional<double>> observed_;
  tuning::Regressor regressor_;
  int64_t proposals_ = 0;
  int64_t current_ = 0;       // of annealing
  double temperature_ = 0.2;  // as a share of the current time
};

}  // namespace seqfuse::serving
