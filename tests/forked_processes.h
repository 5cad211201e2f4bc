// Runs a function in several processes, forked from the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/temporary_directory.h"

namespace seqfuse::test {

struct Ended {
  int status = 0;  // of waitpid
  std::string err;
  bool exited_with(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
};

// Processes that were started but not waited for.
//
// A forked process has none of its parent's threads and cannot use CUDA if its parent has. PyTorch
// knows: on a machine with a GPU, whose autograd has a thread per GPU, it refuses the backward pass
// in a process whose parent ran one. So tests that fork must run before all that use autograd or
// CUDA in the test's own process. GoogleTest does this for suites named ...DeathTest, in any order
// of the others.
class ForkedProcesses {
 public:
  // A process exits with status 3 if an expectation failed in body(rank), or if it threw;
  // Ended::err has the details. Throws if the suite has another name.
  ForkedProcesses(int size, const std::function<void(int)>& body) {
    const std::string suite =
        testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
    if (!suite.ends_with("DeathTest")) {
      throw std::logic_error("suite " + suite +
                             " forks processes: name it ...DeathTest, so that it runs before tests "
                             "that start threads");
    }
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

}  // namespace seqfuse::test
