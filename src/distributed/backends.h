// Constructors of c10d components, each defined in the one file that includes its headers.
#pragma once

#include <torch/types.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

#include "distributed/launch.h"

namespace seqfuse::distributed {

// Connects to the store of this attempt and waits until it is available. serve: serve the store
// from this process unless torchrun's agent does.
c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, bool serve);

// Empty if this build supports several processes; else why not, and what to do.
std::string why_no_processes();

// Throw Error if this build lacks them.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const Launch& launch);
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            const Launch& launch);

}  // namespace seqfuse::distributed
