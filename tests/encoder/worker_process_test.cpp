// Children that answer, crash and hang: shells that play a process for measurements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "serving/tuning/worker_timer.h"

namespace seqfuse::worker_process_test {
namespace {

using namespace std::chrono_literals;
using serving::Timing;
using serving::WorkerProcess;
using serving::WorkerTimer;
using testing::HasSubstr;
using tuning::Status;

// Says hello, then does `body` with each request in $line.
std::vector<std::string> shell(const std::string& body) {
  return {"/bin/sh", "-c",
          "echo '{\"choices\": {\"softmax\": [\"\", \"threads=32 rows=1 width=8\"]}}'; "
          "while read -r line; do " +
              body + "; done"};
}

WorkerTimer timer_of(const std::string& body) {
  return {shell(body), {.start = 20s, .answer = 300ms}, [] { return false; }};
}

constexpr const char* kOk = "echo '{\"status\": \"ok\", \"milliseconds\": 1.5, \"note\": \"n\"}'";

TEST(Worker, AnswersRequests) {
  WorkerTimer timer = timer_of(kOk);
  for (int i = 0; i < 2; ++i) {
    const Timing timing = *timer.scheme(43690, {});
    EXPECT_EQ(timing.status, Status::ok);
    EXPECT_EQ(timing.milliseconds, 1.5);
    EXPECT_EQ(timing.note, "n");
  }
  EXPECT_EQ(timer.choices({4, 4}).size(), 2U);
  EXPECT_EQ(timer.choices({1, 1}).size(), 1U);
}

TEST(Worker, RequestsSayWhatIsMeasured) {
  WorkerTimer timer = timer_of(
      "case \"$line\" in *'\"choice\":\"aten\",\"segment\":[8,9]'*) " + std::string(kOk) +
      ";; *'\"choices\":{\"norm1\":\"aten\"},\"scheme\":7'*) " + kOk + ";; *) exit 3;; esac");
  EXPECT_EQ(timer.segment({8, 9}, "aten")->status, Status::ok);
  EXPECT_EQ(timer.scheme(7, {{"norm1", "aten"}})->status, Status::ok);
  EXPECT_EQ(timer.scheme(8, {})->status, Status::failed);
}

TEST(Worker, ACrashIsAFailedMeasurementAndTheNextOneRuns) {
  WorkerTimer timer =
      timer_of("case \"$line\" in *:7*) kill -SEGV $$;; *) " + std::string(kOk) + ";; esac");
  const Timing crashed = *timer.scheme(7, {});
  EXPECT_EQ(crashed.status, Status::failed);
  EXPECT_THAT(crashed.note, HasSubstr("ended by signal 11"));
  EXPECT_EQ(timer.scheme(8, {})->status, Status::ok);
}

TEST(Worker, EndsAHangingMeasurementAndRunsTheNextOne) {
  WorkerTimer timer =
      timer_of("case \"$line\" in *:7*) exec sleep 60;; *) " + std::string(kOk) + ";; esac");
  const auto start = std::chrono::steady_clock::now();
  const Timing hung = *timer.scheme(7, {});
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  EXPECT_EQ(hung.status, Status::timeout);
  EXPECT_EQ(hung.note, "no answer within 0.3 s");
  EXPECT_EQ(timer.scheme(8, {})->status, Status::ok);
}

// As after an error of the GPU: the answer counts, and another process goes on.
TEST(Worker, AProcessMaySayThatItEnds) {
  WorkerTimer timer = timer_of(
      "printf '%s\\n' '{\"status\": \"failed\", \"note\": \"CUDA error\\nmore\", \"ends\": true}'; "
      "exit 1");
  for (int i = 0; i < 2; ++i) {
    const Timing timing = *timer.scheme(7, {});
    EXPECT_EQ(timing.status, Status::failed);
    EXPECT_EQ(timing.note, "CUDA error");
  }
}

TEST(Worker, OneThatDoesNotStartIsAnError) {
  WorkerTimer timer({"/bin/sh", "-c", "exit 4"}, {}, [] { return false; });
  try {
    timer.scheme(7, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did not start: it ended with exit code 4"));
  }
}

TEST(Worker, StoppingEndsAMeasurement) {
  WorkerTimer timer(shell("exec sleep 60"), {}, [] { return true; });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(timer.scheme(7, {}).has_value());
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

}  // namespace
}  // namespace seqfuse::worker_process_test
