// What torchrun tells a process: which one of how many it is, and where they meet.
#pragma once

#include <string>

namespace seqfuse::distributed {

struct Launch {
  int rank = 0, size = 1;              // among all processes
  int local_rank = 0, local_size = 1;  // among those of this machine
  std::string address;                 // of the store at which they meet
  int port = 0;
  bool store_is_served = false;  // torchrun's agent serves it; else rank 0 does
  int attempt = 0;               // torchrun restarts the processes under the same store

  // From RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; one process
  // where WORLD_SIZE is not set. Throws UsageError naming the variable that is missing or
  // malformed.
  static Launch from_environment();
};

}  // namespace seqfuse::distributed
