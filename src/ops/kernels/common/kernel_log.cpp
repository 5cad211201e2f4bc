#include "ops/kernels/common/kernel_log.h"

#include <cstdlib>
#include <mutex>
#include <set>

#include "base/log.h"

namespace seqfuse::ops {

bool logs_kernels() {
  static const bool wanted = [] {
    const char* const value = std::getenv("SEQFUSE_LOG_KERNELS");
    return value && value[0] == '1';
  }();
  return wanted;
}

void log_kernel(const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(message).second) log::write(log::Level::info, "kernels", message);
}

}  // namespace seqfuse::ops
