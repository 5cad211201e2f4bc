// What torchrun tells a process: its rank, the number of processes, and the address of the store.
#pragma once

#include <string>

namespace seqfuse::distributed {

struct Launch {
  int rank = 0, size = 1;              // among all processes
  int local_rank = 0, local_size = 1;  // among those of this machine
  std::string address;                 // of the store
  int port = 0;
  bool store_is_served = false;  // torchrun's agent serves the store; else rank 0 does
  int attempt = 0;               // torchrun restarts the processes under the same store

  // Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; a single
  // process if WORLD_SIZE is not set. Throws UsageError naming a missing or malformed
  // variable.
  static Launch from_environment();
};

}  // namespace seqfuse::distributed
