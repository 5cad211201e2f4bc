// The machine's main memory.
#pragma once

#include <cstdint>
#include <optional>

namespace seqfuse {

// Bytes, from /proc/meminfo; nothing where the system does not say.
std::optional<int64_t> available_host_memory();  // that programs can get without swapping
std::optional<int64_t> total_host_memory();

}  // namespace seqfuse
