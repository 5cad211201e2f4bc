// The parts of c10d that a process group is made of, each in a file that includes its headers.
#pragma once

#include <torch/types.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/launch.h"

namespace seqfuse::distributed {

// A connection to the store of this attempt. serve: open the store here, unless torchrun's agent
// serves it. Waits for a store that is not there yet.
c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, bool serve);

// Throw Error where this build lacks them.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const Launch& launch);
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            const Launch& launch);

}  // namespace seqfuse::distributed
