// Counts the launches of work on a GPU by the host.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace seqfuse::serving {

// Kernels, copies and graphs that work launches, a graph as one, by PyTorch's profiler. Nothing on a
// CPU, or where the profiler does not see the GPU.
std::optional<int64_t> count_launches(at::Device device, const std::function<void()>& work);

}  // namespace seqfuse::serving
