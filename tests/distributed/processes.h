// Runs a function in several processes that form a group, as torchrun would start them.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/parallel.h"
#include "distributed/process_group.h"
#include "tests/forked_processes.h"
#include "tests/free_port.h"

namespace seqfuse::distributed {

using test::Ended;
using test::ForkedProcesses;

inline Launch launch_of(int rank, int size, int port) {
  return {.rank = rank,
          .size = size,
          .local_rank = rank,
          .local_size = size,
          .address = "127.0.0.1",
          .port = port};
}

// The parent must have only one thread: forked children would lack the others and wait for them.
inline const bool kOneThread = [] {
  at::set_num_threads(1);
  set_num_threads(1);
  return true;
}();

// Runs body(group) in each of size processes, which leave together. Failed expectations in it
// count.
inline void in_processes(int size, const std::function<void(ProcessGroup&)>& body) {
  const int port = free_port();
  ForkedProcesses processes(size, [&](int rank) {
    ProcessGroup group(launch_of(rank, size, port), at::kCPU, /*rank_timeout_seconds=*/10);
    body(group);
    group.leave();
  });
  for (const Ended& ended : processes.wait()) EXPECT_TRUE(ended.exited_with(0)) << ended.err;
}

}  // namespace seqfuse::distributed
