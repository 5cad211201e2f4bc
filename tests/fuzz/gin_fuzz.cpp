// Any text either is refused with a UsageError or yields a configuration whose operative form loads
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
#include "tests/minimal_config.h"

namespace {

void check(const std::string& text) {
  using namespace seqfuse::config;
  for (const Statement& statement : parse_gin("fuzz.gin", text)) {
    if (std::holds_alternative<Include>(statement)) return;  // would read files on this machine
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
  // Alone (a benchmark excludes DatasetArgs), and appended to the required parameters.
  for (const std::string& whole : {text, seqfuse::config::kMinimalConfig + text}) {
    try {
      check(whole);
    } catch (const seqfuse::UsageError&) {
    }
  }
  return 0;
}
