#include "distributed/launch.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace seqfuse::distributed {
namespace {

constexpr const char* kAdvice =
    "start several processes with `torchrun --no-python --nproc_per_node N seqfuse train ...`, one "
    "without WORLD_SIZE";

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  SEQFUSE_CHECK_AS(UsageError, value != nullptr && *value != '\0',
                   "WORLD_SIZE is set, but {} is not: {}", name, kAdvice);
  return value;
}

int number_of(const char* name, int low, int high, std::optional<int> otherwise = std::nullopt) {
  if (otherwise && std::getenv(name) == nullptr) return *otherwise;
  const std::string text = text_of(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SEQFUSE_CHECK_AS(
      UsageError,
      error == std::errc{} && end == text.data() + text.size() && value >= low && value <= high,
      "{} is '{}'; expected a number from {} to {}: {}", name, text, low, high, kAdvice);
  return value;
}

}  // namespace

Launch Launch::from_environment() {
  Launch launch;
  if (std::getenv("WORLD_SIZE") == nullptr) return launch;
  constexpr int kMostProcesses = 1 << 20;
  launch.size = number_of("WORLD_SIZE", 1, kMostProcesses);
  launch.rank = number_of("RANK", 0, launch.size - 1);
  launch.local_size = number_of("LOCAL_WORLD_SIZE", 1, launch.size, launch.size);
  launch.local_rank = number_of("LOCAL_RANK", 0, launch.local_size - 1, launch.rank);
  if (launch.size == 1) return launch;
  launch.address = text_of("MASTER_ADDR");
  launch.port = number_of("MASTER_PORT", 1, 65535);
  const char* served = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  launch.store_is_served = served != nullptr && std::string_view(served) == "True";
  launch.attempt = number_of("TORCHELASTIC_RESTART_COUNT", 0, kMostProcesses, 0);
  return launch;
}

}  // namespace seqfuse::distributed
