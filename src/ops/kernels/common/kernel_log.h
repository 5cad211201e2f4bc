// Messages about the kernels that are chosen.
#pragma once

#include <string>

namespace seqfuse::ops {

// Whether SEQFUSE_LOG_KERNELS=1 is in the environment. Read at the first call.
bool logs_kernels();

// Prints a message to standard error, once for each text.
void log_kernel(const std::string& message);

}  // namespace seqfuse::ops
