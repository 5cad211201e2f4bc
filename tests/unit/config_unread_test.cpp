// Every parameter is read somewhere or reported as having no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>

#include "base/file.h"
#include "config/registry.h"
#include "config/without_effect.h"
#include "tests/minimal_config.h"
#include "tests/paths.h"

namespace seqfuse::config::config_unread_test {
namespace {
namespace fs = std::filesystem;

// All sources except src/config and the list of parameters that may change on resume.
std::string sources() {
  std::string text;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(test::source_directory()) / "src")) {
    const std::string path = entry.path().string(), ending = entry.path().extension().string();
    if (!entry.is_regular_file() || path.find("/config/") != std::string::npos ||
        path.find("resumed_config") != std::string::npos) {
      continue;
    }
    if (ending == ".cpp" || ending == ".h") text += read_file(entry.path());
  }
  return text;
}

bool is_without_effect(const std::string& class_name, const std::string& parameter) {
  return std::ranges::any_of(parameters_without_effect(), [&](const WithoutEffect& each) {
    return each.class_name == class_name && each.parameter == parameter;
  });
}

TEST(ConfigUnread, EveryParameterIsReadOrSaidToBeWithoutEffect) {
  const std::string text = sources();
  for (const ClassInfo& info : classes()) {
    for (const ParameterInfo& parameter : info.parameters) {
      const bool read = std::regex_search(text, std::regex("(\\.|->)" + parameter.name + "\\b"));
      EXPECT_EQ(read, !is_without_effect(info.name, parameter.name))
          << info.name << "." << parameter.name << (read ? " is read" : " is never read");
    }
  }
}

TEST(ConfigUnread, WhatIsSetWithoutEffectIsNamedOnce) {
  const auto warning = [](const std::string& lines) {
    return warn_without_effect(load_config_text("t.gin", kMinimalConfig + lines).config);
  };
  EXPECT_EQ(warning("NetworkArgs.kernel_backend = 'cutlass'"), "");
  EXPECT_EQ(warning("NetworkArgs.embedding_backend = 'other'"),
            "no effect: NetworkArgs.embedding_backend (there is only one backend)");
}

}  // namespace
}  // namespace seqfuse::config::config_unread_test
