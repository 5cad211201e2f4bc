// Any text either is refused with a UsageError or makes a configuration whose operative form loads
// back to the same configuration.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "base/log.h"
#include "config/load.h"
#include "config/parser.h"

namespace {

// What every configuration needs, so that a few lines of input get past the list of what is
// missing.
constexpr std::string_view kRequired =
    "TrainerArgs.train_batch_size = 4\n"
    "TrainerArgs.eval_batch_size = 4\n"
    "DatasetArgs.dataset_name = 'd'\n"
    "DatasetArgs.max_history_seqlen = 20\n"
    "NetworkArgs.num_layers = 1\n"
    "NetworkArgs.hidden_size = 8\n"
    "NetworkArgs.num_attention_heads = 2\n"
    "NetworkArgs.kv_channels = 4\n"
    "OptimizerArgs.optimizer_str = 'adam'\n"
    "OptimizerArgs.learning_rate = 1e-3\n";

void check(const std::string& text) {
  using namespace seqfuse::config;
  for (const Statement& statement : parse_gin("fuzz.gin", text)) {
    if (std::holds_alternative<Include>(statement)) return;  // would read files of this machine
  }
  const LoadedConfig loaded = load_config_text("fuzz.gin", text);
  const LoadedConfig again = load_config_text("operative_config.gin", loaded.operative);
  if (again.config != loaded.config || again.operative != loaded.operative) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  seqfuse::log::set_level(seqfuse::log::Level::quiet);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  // As it is (a benchmark excludes DatasetArgs), and as an addition to what is required.
  for (const std::string& whole : {text, std::string(kRequired) + text}) {
    try {
      check(whole);
    } catch (const seqfuse::UsageError&) {
    }
  }
  return 0;
}
