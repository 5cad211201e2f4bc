// Runs a function in several processes that form a group, as torchrun would start them.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "distributed/process_group.h"
#include "tests/free_port.h"
#include "tests/temporary_directory.h"

namespace seqfuse::distributed {

inline Launch launch_of(int rank, int size, int port) {
  return {.rank = rank,
          .size = size,
          .local_rank = rank,
          .local_size = size,
          .address = "127.0.0.1",
          .port = port};
}

struct Ended {
  int status = 0;  // of waitpid
  std::string err;
  bool exited_with(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
};

// The parent must have only one thread: forked children would lack the others and wait for them.
inline const bool kOneThread = [] {
  at::set_num_threads(1);
  set_num_threads(1);
  return true;
}();

// Processes that were started but not waited for.
class Processes {
 public:
  // A process exits with status 3 if an expectation failed in body(rank), or if it threw;
  // Ended::err has the details.
  Processes(int size, const std::function<void(int)>& body) {
    std::fflush(nullptr);  // otherwise each child would print the buffered output again
    for (int rank = 0; rank < size; ++rank) {
      pids_.push_back(fork());
      if (pids_.back() != 0) continue;
      if (!std::freopen(error_file(rank).c_str(), "w", stderr)) _exit(4);
      dup2(fileno(stderr), fileno(stdout));  // gtest reports failures on stdout
      bool threw = false;
      try {
        body(rank);
      } catch (const std::exception& error) {
        threw = true;
        std::fprintf(stderr, "%s\n", error.what());
      }
      std::fflush(nullptr);
      _exit(threw || testing::Test::HasFailure() ? 3 : 0);
    }
  }

  pid_t pid(int rank) const { return pids_[rank]; }

  std::vector<Ended> wait() {
    std::vector<Ended> ended(pids_.size());
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      waitpid(pids_[rank], &ended[rank].status, 0);
      std::ifstream file(error_file(static_cast<int>(rank)));
      ended[rank].err.assign(std::istreambuf_iterator<char>(file), {});
    }
    return ended;
  }

 private:
  std::string error_file(int rank) const {
    return (directory_.path() / ("stderr" + std::to_string(rank))).string();
  }

  TemporaryDirectory directory_;
  std::vector<pid_t> pids_;
};

// Runs body(group) in each of size processes, which leave together. Failed expectations in it
// count.
inline void in_processes(int size, const std::function<void(ProcessGroup&)>& body) {
  const int port = free_port();
  Processes processes(size, [&](int rank) {
    ProcessGroup group(launch_of(rank, size, port), at::kCPU, /*rank_timeout_seconds=*/10);
    body(group);
    group.leave();
  });
  for (const Ended& ended : processes.wait()) EXPECT_TRUE(ended.exited_with(0)) << ended.err;
}

}  // namespace seqfuse::distributed
