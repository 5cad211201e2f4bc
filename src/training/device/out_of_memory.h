// Failed allocations: detects them and explains them.
#pragma once

#include <torch/types.h>

#include <exception>
#include <string>

namespace seqfuse::training {

// Host (std::bad_alloc, torch's allocator) or GPU (torch's allocator, CUDA, cuBLAS).
bool is_out_of_memory(const std::exception& error);

// An error's message without torch's stack trace; for a failed allocation, the requested size and
// how much memory there is.
std::string message_of(const std::exception& error);

// Returns memory cached by torch's allocator to the GPU; does nothing on the CPU.
void release_cached_memory(at::Device device);

}  // namespace seqfuse::training
