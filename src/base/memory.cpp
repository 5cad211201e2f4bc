#include "base/memory.h"

#include <fstream>
#include <string>
#include <string_view>

namespace seqfuse {
namespace {

std::optional<int64_t> line_of_meminfo(std::string_view key) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kibibytes = 0; file >> name >> kibibytes; std::getline(file, unit)) {
    if (name == key) return kibibytes * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> available_host_memory() {
  return line_of_meminfo("MemAvailable:");
}

std::optional<int64_t> total_host_memory() {
  return line_of_meminfo("MemTotal:");
}

}  // namespace seqfuse
