#include "serving/tuning/scheme_search.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "fusion/legality.h"

namespace seqfuse::serving {
namespace {

using fusion::index_of;
using fusion::Op;
using fusion::Scheme;

constexpr std::array<const char*, 4> kStrategyNames{"boosted", "random", "annealing", "exhaustive"};
constexpr double kCooling = 0.9;      // of the temperature, for each measurement
constexpr int kExploreEach = 4;       // every fourth proposal is not the first of the predictor
constexpr size_t kExploreAmong = 20;  // but one of the first twenty
constexpr size_t kLearnFrom = 6;      // measurements before the predictor counts
constexpr size_t kOften = 32;         // up to this many examples, each one is learnt
constexpr tuning::BoostingOptions kTrees{.trees = 100, .depth = 3};

}  // namespace

Strategy strategy_named(std::string_view name) {
  for (size_t i = 0; i < kStrategyNames.size(); ++i) {
    if (name == kStrategyNames[i]) return static_cast<Strategy>(i);
  }
  throw_error<UsageError>("--search is {}; expected boosted, random or annealing", name);
}

const char* name_of(Strategy strategy) {
  return kStrategyNames[static_cast<size_t>(strategy)];
}

const std::vector<int64_t>& legal_programs() {
  static const std::vector<int64_t> programs = [] {
    std::vector<int64_t> numbers;
    for (int64_t number = fusion::kFirstListed; number <= fusion::kLastListed; ++number) {
      if (fusion::check(Scheme::from_number(number)).holds()) numbers.push_back(number);
    }
    return numbers;
  }();
  return programs;
}

int64_t default_program() {
  const std::array<fusion::Segment, 4> segments{
      {{index_of(Op::gemm0), index_of(Op::bias0_split)},
       {index_of(Op::qk), index_of(Op::transpose)},
       {index_of(Op::bias1_residual), index_of(Op::layer_norm1)},
       {index_of(Op::bias3_residual), index_of(Op::layer_norm2)}}};
  return Scheme(segments, fusion::Mha::written_by_hand).number();
}

void SegmentTimes::set(fusion::Segment segment, double milliseconds) {
  times_[{segment.first, segment.last}] = milliseconds;
}

std::optional<double> SegmentTimes::sum(int64_t scheme, int64_t layers) const {
  double total = 0;
  for (const fusion::Segment& segment : Scheme::from_number(scheme).segments()) {
    const auto time = times_.find({segment.first, segment.last});
    if (time == times_.end()) return std::nullopt;
    total += time->second;
  }
  return total * static_cast<double>(layers);
}

SchemeSearch::SchemeSearch(Strategy strategy, const tuning::Setting& setting, uint64_t seed)
    : strategy_(strategy), setting_(setting), random_(seed), regressor_(kTrees) {}

void SchemeSearch::use_segments(const SegmentTimes& times) {
  segments_ = times;
  learn();
}

std::vector<int64_t> SchemeSearch::unknown() const {
  std::vector<int64_t> numbers;
  for (const int64_t number : legal_programs()) {
    if (!known(number)) numbers.push_back(number);
  }
  return numbers;
}

std::optional<SchemeSearch::Proposal> SchemeSearch::next() {
  const std::vector<int64_t> left = unknown();
  if (left.empty()) return std::nullopt;
  ++proposals_;
  switch (strategy_) {
    case Strategy::boosted:
      return by_prediction();
    case Strategy::annealing:
      return Proposal{by_annealing(), expected(current_)};
    case Strategy::random:
      return Proposal{left[random_.below(left.size())], std::nullopt};
    case Strategy::exhaustive:
      break;
  }
  return Proposal{left.front(), expected(left.front())};
}

std::optional<double> SchemeSearch::expected(int64_t scheme) const {
  if (strategy_ == Strategy::random || strategy_ == Strategy::annealing) return std::nullopt;
  const std::optional<double> sum = segments_.sum(scheme, setting_.layers);
  if (!regressor_.trained()) return sum;
  if (!segments_.empty() && !sum) return std::nullopt;
  return sum.value_or(1) * regressor_.predict(setting_, Scheme::from_number(scheme));
}

SchemeSearch::Proposal SchemeSearch::by_prediction() {
  std::vector<Proposal> all;
  for (const int64_t scheme : unknown()) {
    if (const auto time = expected(scheme)) all.push_back({scheme, time});
  }
  if (all.empty()) {  // nothing is known yet
    const std::vector<int64_t> left = unknown();
    return {left[random_.below(left.size())], std::nullopt};
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Proposal& a, const Proposal& b) { return *a.expected < *b.expected; });
  const bool explore = proposals_ % kExploreEach == 0;
  return all[explore ? random_.below(std::min(all.size(), kExploreAmong)) : 0];
}

int64_t SchemeSearch::neighbour(int64_t scheme) {
  std::vector<fusion::Segment> segments;
  const Scheme from = Scheme::from_number(scheme);
  const auto flipped = static_cast<int>(random_.below(fusion::kOps - 1));
  for (int op = 0, first = 0; op < fusion::kOps; ++op) {
    const bool cut = op == fusion::kOps - 1 || from.cut_after(op) != (op == flipped);
    if (!cut) continue;
    segments.push_back({first, op});
    first = op + 1;
  }
  return fusion::program_of(Scheme(segments, fusion::Mha::written_by_hand)).number();
}

// Walks over what is known until it comes to what is not.
int64_t SchemeSearch::by_annealing() {
  constexpr int kMostSteps = 5000;
  const std::vector<int64_t> left = unknown();
  if (current_ == 0) current_ = left[random_.below(left.size())];
  if (!known(current_)) return current_;
  for (int step = 0; step < kMostSteps; ++step) {
    const int64_t candidate = neighbour(current_);
    if (!known(candidate)) return candidate;
    const auto now = observed_.at(current_), then = observed_.at(candidate);
    if (!then) continue;
    const double worse = now ? *then / *now - 1 : -1;
    if (worse <= 0 || random_.unit() < std::exp(-worse / temperature_)) current_ = candidate;
  }
  return left[random_.below(left.size())];
}

void SchemeSearch::observe(int64_t scheme, std::optional<double> milliseconds) {
  observed_[scheme] = milliseconds;
  temperature_ *= kCooling;
  if (strategy_ == Strategy::annealing && milliseconds) {
    const auto now = observed_.contains(current_) ? observed_.at(current_) : std::nullopt;
    const double worse = now ? *milliseconds / *now - 1 : -1;
    if (worse <= 0 || random_.unit() < std::exp(-worse / temperature_)) current_ = scheme;
  }
  learn();
}

// From the factors between measured times and sums of segments, or from the times.
void SchemeSearch::learn() {
  if (strategy_ != Strategy::boosted) return;
  std::vector<tuning::Example> examples;
  bool differ = false;
  for (const auto& [scheme, time] : observed_) {
    const auto sum = segments_.sum(scheme, setting_.layers);
    if (!time || (!segments_.empty() && !sum)) continue;
    examples.push_back({setting_, Scheme::from_number(scheme), *time / sum.value_or(1)});
    differ |= examples.back().milliseconds != examples.front().milliseconds;
  }
  // With many examples, one more changes little.
  const bool often = examples.size() < kOften || examples.size() % kOften == 0;
  if (examples.size() >= kLearnFrom && differ && often) regressor_.fit(examples);
}

}  // namespace seqfuse::serving
