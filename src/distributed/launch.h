// The launch parameters from torchrun: rank, number of processes, address of the store.
#pragma once

#include <string>

namespace seqfuse::distributed {

struct Launch {
  int rank = 0, size = 1;              // among all processes
  int local_rank = 0, local_size = 1;  // among those of this machine
  std::string address;                 // of the store
  int port = 0;
  bool store_is_served = false;  // by torchrun's agent; otherwise rank 0 serves it
  int attempt = 0;               // torchrun restarts the processes under the same store

  // Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; a single
  // process if WORLD_SIZE is not set. Throws UsageError naming a missing or malformed
  // variable.
  static Launch from_environment();
};

}  // namespace seqfuse::distributed
