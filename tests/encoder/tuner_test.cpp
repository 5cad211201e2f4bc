// The search, on times that are made up.
#include "serving/tuning/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "fusion/codegen/row_kernel.h"
#include "serving/tuning/recorded_timer.h"

namespace seqfuse::tuner_test {
namespace {

using fusion::index_of;
using fusion::Op;
using fusion::Scheme;
using fusion::Segment;
using serving::Strategy;
using serving::Timing;
using serving::TuneOptions;
using serving::TuneResult;
using testing::HasSubstr;
using tuning::Status;

constexpr int64_t kLayers = 3;

// A segment takes 1 ms for each operator, less what its fusion saves, and a little that depends on the
// operators alone.
double made_up_time(Segment segment) {
  double time = 0;
  for (int op = segment.first; op <= segment.last; ++op) time += 1 + 0.01 * op;
  if (segment == Segment{index_of(Op::qk), index_of(Op::transpose)}) time -= 3;
  if (segment == Segment{index_of(Op::gemm1), index_of(Op::bias1_residual)}) time -= 0.8;
  if (segment == Segment{index_of(Op::bias3_residual), index_of(Op::layer_norm2)}) time -= 0.9;
  if (segment == Segment{index_of(Op::gemm2), index_of(Op::gemm3)}) time += 2;
  return time;
}

class MadeUpTimer : public serving::Timer {
 public:
  std::optional<Timing> scheme(int64_t number, const serving::SegmentChoices& choices) override {
    if (++asked > stop_after) return std::nullopt;
    if (wrong.contains(number)) return Timing{Status::wrong, 0, "its error is 1"};
    double time = 0;
    for (const Segment& segment : Scheme::from_number(number).segments()) {
      const auto choice = choices.find(name_of(segment));
      time += made_up_time(segment) * (choice == choices.end() ? 1 : factor(choice->second));
    }
    measured.push_back(number);
    // Whole programs take a little more than their segments, and the more of them there are.
    return Timing{Status::ok, kLayers * time * 1.02, ""};
  }
  std::optional<Timing> segment(Segment segment, const std::string& choice) override {
    if (++asked > stop_after) return std::nullopt;
    if (segment == Segment{index_of(Op::transpose), index_of(Op::gemm1)})
      return Timing{Status::timeout, 0, "no answer within 1.0 s"};
    return Timing{Status::ok, made_up_time(segment) * factor(choice), ""};
  }
  std::vector<std::string> choices(Segment segment) override {
    if (segment.first != index_of(Op::bias3_residual)) return {""};
    return {"", "threads=128 rows=4 width=8", "threads=64 rows=2 width=8"};
  }
  static double factor(const std::string& choice) {
    return choice.starts_with("threads=64") ? 0.5 : choice.empty() ? 1 : 0.9;
  }

  int64_t asked = 0, stop_after = 1 << 20;
  std::set<int64_t> wrong;
  std::vector<int64_t> measured;
};

double time_of(int64_t scheme) {
  double time = 0;
  for (const Segment& segment : Scheme::from_number(scheme).segments())
    time += made_up_time(segment);
  return time * kLayers * 1.02;
}

int64_t fastest_program() {
  const auto& all = serving::legal_programs();
  return *std::min_element(all.begin(), all.end(),
                           [](int64_t a, int64_t b) { return time_of(a) < time_of(b); });
}

class Search : public testing::Test {
 protected:
  TuneResult run(const TuneOptions& options, std::vector<tuning::Measurement> known = {}) {
    serving::Tuner tuner(
        timer_, setting_, origin_, options, std::move(known),
        [&](const tuning::Measurement& measurement) {
          tuning::check(measurement);
          kept_.push_back(measurement);
        },
        [&](int64_t, int64_t, const std::string& line) { lines_.push_back(line); });
    return tuner.run();
  }

  MadeUpTimer timer_;
  std::vector<tuning::Measurement> kept_;
  const tuning::Setting setting_{.model = "made up",
                                 .hidden = 64,
                                 .heads = 4,
                                 .inner = 256,
                                 .layers = kLayers,
                                 .batch = 2,
                                 .seq = 32,
                                 .mask = "none",
                                 .dtype = "float32"};
  const tuning::Origin origin_{.card = "cpu", .driver = "", .version = "0"};
  std::vector<std::string> lines_;
};

TEST_F(Search, FindsTheFastestOfFewMeasurements) {
  const TuneResult result = run({.budget = 5, .tiles = false});
  EXPECT_EQ(result.scheme, fastest_program());
  EXPECT_EQ(result.programs, 5);
  EXPECT_EQ(result.segments, 31);
  EXPECT_EQ(result.timeout, 1);
  EXPECT_NEAR(result.milliseconds, time_of(result.scheme), 1e-9);
  EXPECT_NEAR(*result.default_milliseconds, time_of(serving::default_program()), 1e-9);
  ASSERT_EQ(result.sum_errors.size(), 4U);
  EXPECT_NEAR(result.sum_errors[0], 1 / 1.02 - 1, 1e-9);
  EXPECT_THAT(lines_.back(), HasSubstr("best "));
}

TEST_F(Search, WrongProgramsAreRecordedAndNeverTheResult) {
  timer_.wrong = {fastest_program()};
  const TuneResult result = run({.budget = 6, .tiles = false});
  EXPECT_NE(result.scheme, fastest_program());
  EXPECT_GE(result.wrong, 1);
  const auto wrong = std::find_if(kept_.begin(), kept_.end(), [](const tuning::Measurement& m) {
    return m.status == Status::wrong;
  });
  ASSERT_NE(wrong, kept_.end());
  EXPECT_EQ(*wrong->scheme, fastest_program());
  EXPECT_EQ(wrong->config, "why: its error is 1");
}

// What NVRTC does not compile runs by plain PyTorch; a crash is a measurement without a time.
TEST_F(Search, FallbacksAndFailuresAreRecordedAndItGoesOn) {
  class Faulty : public MadeUpTimer {
   public:
    std::optional<Timing> scheme(int64_t number, const serving::SegmentChoices& choices) override {
      auto timing = MadeUpTimer::scheme(number, choices);
      if (measured.size() == 2) return Timing{Status::failed, 0, "it was ended by signal 11"};
      return timing;
    }
    std::optional<Timing> segment(Segment segment, const std::string& choice) override {
      auto timing = MadeUpTimer::segment(segment, choice);
      if (segment == Segment{index_of(Op::mask), index_of(Op::softmax)})
        timing->note = "plain PyTorch, since NVRTC does not compile the kernel";
      return timing;
    }
  } timer;
  serving::Tuner tuner(
      timer, setting_, origin_, {.budget = 6, .tiles = false}, {},
      [&](const tuning::Measurement& measurement) { kept_.push_back(measurement); },
      [](auto...) {});
  const TuneResult result = tuner.run();
  EXPECT_EQ(result.failed, 1);
  EXPECT_EQ(result.programs, 6);
  const auto kept_as = [&](Status status, const std::string& config) {
    return std::count_if(kept_.begin(), kept_.end(), [&](const tuning::Measurement& m) {
      return m.status == status && m.config == config;
    });
  };
  EXPECT_EQ(kept_as(Status::failed, "why: it was ended by signal 11"), 1);
  EXPECT_EQ(kept_as(Status::ok, "fallback: plain PyTorch, since NVRTC does not compile the kernel"),
            1);
}

TEST_F(Search, TilesAreChosenInTheSecondStage) {
  const TuneResult result = run({.budget = 5});
  ASSERT_EQ(result.choices.size(), 1U);
  EXPECT_EQ(result.choices.begin()->first, "bias3_residual_norm2");
  EXPECT_EQ(result.choices.begin()->second, "threads=64 rows=2 width=8");
  EXPECT_LT(result.milliseconds, time_of(result.scheme));
}

TEST_F(Search, ExhaustiveMeasuresEachProgramOnce) {
  run({.strategy = Strategy::exhaustive, .budget = 720, .tiles = false});
  const std::set<int64_t> distinct(timer_.measured.begin(), timer_.measured.end());
  EXPECT_EQ(distinct.size(), 720U);
  EXPECT_LE(timer_.measured.size(), 724U);  // the best ones twice
}

TEST_F(Search, OtherStrategiesNeedNoSegments) {
  for (const Strategy strategy : {Strategy::random, Strategy::annealing}) {
    timer_.measured.clear();
    const TuneResult first = run({.strategy = strategy, .budget = 40, .seed = 3, .tiles = false});
    EXPECT_EQ(first.segments, 0);
    EXPECT_EQ(first.programs, 40);
    const std::vector<int64_t> order = timer_.measured;
    timer_.measured.clear();
    run({.strategy = strategy, .budget = 40, .seed = 3, .tiles = false});
    EXPECT_EQ(timer_.measured, order) << serving::name_of(strategy);
    timer_.measured.clear();
    run({.strategy = strategy, .budget = 40, .seed = 4, .tiles = false});
    EXPECT_NE(timer_.measured, order) << serving::name_of(strategy);
    EXPECT_LE(first.milliseconds, time_of(serving::default_program()));
  }
}

TEST_F(Search, DoesNotMeasureKnownSchemesAgain) {
  timer_.stop_after = 34;  // the default, 31 segments and two programs
  const TuneResult stopped = run({.budget = 8, .tiles = false});
  EXPECT_TRUE(stopped.stopped);
  EXPECT_NE(stopped.scheme, 0);
  EXPECT_EQ(kept_.size(), 34U);
  timer_.stop_after = 1 << 20;
  const TuneResult resumed = run({.budget = 8, .tiles = false}, kept_);
  EXPECT_EQ(resumed.segments, 0);
  EXPECT_EQ(resumed.programs, 5);
  EXPECT_EQ(resumed.reused, 34);
  EXPECT_EQ(resumed.scheme, fastest_program());
}

// With recorded times a search takes the same path.
TEST_F(Search, RecordedTimesTakeTheTimersPlace) {
  run({.strategy = Strategy::exhaustive, .budget = 720, .tiles = false});
  serving::RecordedTimer record(kept_);
  EXPECT_EQ(record.programs(), 720);
  EXPECT_EQ(record.fastest(), fastest_program());
  const TuneOptions options{.budget = 9, .seed = 5, .tiles = false};
  const auto with = [&](serving::Timer& timer) {
    std::vector<int64_t> schemes;
    serving::Tuner tuner(
        timer, setting_, origin_, options, {},
        [&](const tuning::Measurement& m) { schemes.push_back(m.scheme.value_or(-1)); },
        [](auto...) {});
    EXPECT_EQ(tuner.run().scheme, fastest_program());
    return schemes;
  };
  EXPECT_EQ(with(record), with(timer_));
  EXPECT_EQ(record.scheme(fastest_program(), {{"norm1", "aten"}})->status, Status::failed);
  EXPECT_EQ(serving::RecordedTimer({}).fastest(), 0);
}

// Each measurement takes a second of a clock of its own; one that would end after the deadline is given up, as
// WorkerTimer does.
class SlowTimer : public MadeUpTimer {
 public:
  std::optional<Timing> scheme(int64_t number, const serving::SegmentChoices& choices) override {
    return taken(1, [&] { return MadeUpTimer::scheme(number, choices); });
  }
  std::optional<Timing> segment(Segment segment, const std::string& choice) override {
    return taken(0.25, [&] { return MadeUpTimer::segment(segment, choice); });
  }
  template <class Measure>
  std::optional<Timing> taken(double duration, const Measure& measure) {
    if (measured.empty()) duration += start;
    if (measured.size() == hangs_after) duration = 100;
    clock += duration;
    if (tuner == nullptr || !tuner->past_deadline()) return measure();
    clock = deadline;
    return std::nullopt;
  }
  serving::Tuner::Clock::time_point now() const {
    return serving::Tuner::Clock::time_point(
        std::chrono::duration_cast<serving::Tuner::Clock::duration>(
            std::chrono::duration<double>(clock)));
  }

  double clock = 0, deadline = 0, start = 5;
  size_t hangs_after = 1000;  // programs
  const serving::Tuner* tuner = nullptr;
};

TEST_F(Search, SecondsBoundTheLastMeasurementsToo) {
  for (const double seconds : {7.0, 20.0, 40.0, 60.0}) {
    for (const bool tiles : {false, true}) {
      SlowTimer timer;
      timer.deadline = seconds;
      const TuneOptions options{.budget = 720, .seconds = seconds, .tiles = tiles};
      serving::Tuner tuner(
          timer, setting_, origin_, options, {}, [](const auto&) {}, [](auto...) {},
          [&] { return timer.now(); });
      timer.tuner = &tuner;
      const TuneResult result = tuner.run();
      EXPECT_LE(timer.clock, seconds);
      EXPECT_FALSE(result.stopped);
      EXPECT_NE(result.scheme, 0);
      // There is time to measure the best ones once more, and no more of it is left than they may take.
      EXPECT_TRUE(result.confirmed) << seconds;
      if (seconds >= 40) {
        EXPECT_EQ(result.scheme, fastest_program());
        EXPECT_GE(std::count(timer.measured.begin(), timer.measured.end(), result.scheme), 2);
        if (!tiles) {
          EXPECT_GE(timer.clock, seconds - 3);
        }
      }
    }
  }
}

// What is known leaves the start of the timer to the first program that is measured.
TEST_F(Search, ASlowStartOfAResumedSearchIsNotTheTimeOfAProgram) {
  const TuneOptions before{.strategy = Strategy::random, .budget = 1, .tiles = false};
  run(before);
  SlowTimer timer;
  timer.deadline = 60;
  timer.start = 15;
  const TuneOptions options{
      .strategy = Strategy::random, .budget = 720, .seconds = 60, .tiles = false};
  serving::Tuner tuner(
      timer, setting_, origin_, options, kept_, [](const auto&) {}, [](auto...) {},
      [&] { return timer.now(); });
  timer.tuner = &tuner;
  const TuneResult result = tuner.run();
  EXPECT_GT(result.reused, 0);
  EXPECT_GT(result.programs, 15);
  EXPECT_LE(timer.clock, 60);
}

TEST_F(Search, AMeasurementAtTheDeadlineIsGivenUp) {
  SlowTimer timer;
  timer.deadline = 60;
  timer.hangs_after = 3;
  const TuneOptions options{.strategy = Strategy::random, .budget = 720, .seconds = 60};
  serving::Tuner tuner(
      timer, setting_, origin_, options, {},
      [&](const tuning::Measurement& measurement) { kept_.push_back(measurement); }, [](auto...) {},
      [&] { return timer.now(); });
  timer.tuner = &tuner;
  const TuneResult result = tuner.run();
  EXPECT_TRUE(result.out_of_time);
  EXPECT_FALSE(result.stopped);
  EXPECT_FALSE(result.confirmed);
  EXPECT_NE(result.scheme, 0);
  EXPECT_EQ(kept_.size(), 3U);
}

TEST_F(Search, TimeThatIsOutEndsItWithTheBestSoFar) {
  const TuneResult result = run({.budget = 720, .seconds = 1e-9});
  EXPECT_TRUE(result.out_of_time);
  EXPECT_EQ(result.scheme, serving::default_program());
}

TEST(SearchNames, Strategies) {
  EXPECT_EQ(serving::strategy_named("annealing"), Strategy::annealing);
  EXPECT_THROW(serving::strategy_named("xgboost"), UsageError);
  EXPECT_EQ(serving::default_program(), 40811);
}

}  // namespace
}  // namespace seqfuse::tuner_test
