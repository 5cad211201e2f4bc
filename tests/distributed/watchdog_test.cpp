// How the other processes react when one dies, stops, hangs or fails.
#include "distributed/watchdog.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "tests/distributed/processes.h"
#include "tests/patience.h"

namespace seqfuse::distributed::watchdog_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr double kTimeout = 2;

struct Result {
  std::vector<Ended> ended;
  double seconds = 0;  // since the disturbance
};

// Rank 1 of three calls disturb() in step 3, while the others wait for it.
Result disturbed(const std::function<void(ProcessGroup&)>& disturb) {
  const int port = free_port();
  const auto start = steady_clock::now();
  ForkedProcesses processes(3, [&](int rank) {
    ProcessGroup group(launch_of(rank, 3, port), at::kCPU, kTimeout);
    for (int step = 1;; ++step) {
      group.begin("step " + std::to_string(step), kTimeout);
      if (rank == 1 && step == 3) disturb(group);
      const at::Tensor tensor = torch::ones({4});
      group.all_reduce(tensor, "all-reduce of gradients")();
      std::this_thread::sleep_for(milliseconds(100));
    }
  });
  Result result{.ended = processes.wait()};
  result.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(result.ended[rank].exited_with(1)) << result.ended[rank].err;
    EXPECT_THAT(result.ended[rank].err, HasSubstr("rank " + std::to_string(rank) +
                                                  " waited in all-reduce of gradients, step 3"));
  }
  return result;
}

TEST(WatchdogDeathTest, AProcessThatDiesEndsTheOthersAtOnce) {
  const Result result = disturbed([](ProcessGroup&) { raise(SIGKILL); });
  EXPECT_THAT(result.ended[0].err, HasSubstr("rank 1 (process"));
  EXPECT_THAT(result.ended[2].err, HasSubstr("has died"));
  EXPECT_LT(result.seconds, kPatience);
}

TEST(WatchdogDeathTest, AStoppedProcessEndsTheOthersAndIsKilled) {
  const Result result = disturbed([](ProcessGroup&) { raise(SIGSTOP); });
  EXPECT_THAT(result.ended[0].err + result.ended[2].err,
              HasSubstr("rank 1 has sent no heartbeat for 2 s"));
  EXPECT_TRUE(WIFSIGNALED(result.ended[1].status));
  EXPECT_LT(result.seconds, kPatience);
}

TEST(WatchdogDeathTest, AProcessThatHangsWhileItsHeartBeatsIsNamedWithWhatItDid) {
  const Result result =
      disturbed([](ProcessGroup&) { std::this_thread::sleep_for(milliseconds(600'000)); });
  EXPECT_THAT(result.ended[0].err + result.ended[2].err,
              HasSubstr("rank 1 hangs: it has been in step 3 for"));
  EXPECT_LT(result.seconds, kPatience);
}

TEST(WatchdogDeathTest, OthersReportTheErrorOfAFailedProcess) {
  const Result result = disturbed([](ProcessGroup& group) {
    group.fail("disk full: /x\n  details");
    _exit(1);
  });
  EXPECT_THAT(result.ended[0].err, HasSubstr("rank 1 failed: disk full: /x; rank 0 waited"));
}

TEST(WatchdogDeathTest, AConnectionThatBreaksIsAnErrorOfTheCall) {
  in_processes(2, [](ProcessGroup&) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    close(ends[0]);
    EXPECT_EQ(write(ends[1], "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
  });
}

TEST(WatchdogDeathTest, AProcessThatLeavesIsNotMissed) {
  in_processes(2, [](ProcessGroup& group) { group.barrier("test"); });
}

}  // namespace
}  // namespace seqfuse::distributed::watchdog_test
