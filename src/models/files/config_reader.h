// Reads a Hugging Face config.json; every message names the file.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"

namespace seqfuse::models {

// All functions throw DataError for values of another type or range than they name. A member that is
// null counts as absent.
class ConfigReader {
 public:
  // directory/config.json. family: in the message if there is none, such as "BERT". Throws IoError too.
  static ConfigReader of_model(const std::filesystem::path& directory, const std::string& family);
  // A JSON file with one object.
  static ConfigReader open(const std::filesystem::path& file);

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_error<DataError>("{}: {}", file_, fmt::format(format, std::forward<Args>(args)...));
  }

  const nlohmann::json* find(const char* key) const;  // null if absent
  int64_t size(const char* key) const;                // 1 or more; must be there
  double positive(const char* key, double otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const std::string& otherwise) const;
  // An id or a list of ids, each below vocab_size; none if absent.
  std::vector<int64_t> ids(const char* key, int64_t vocab_size) const;
  ConfigReader object(const char* key) const;  // must be there

 private:
  ConfigReader(const std::filesystem::path& file, nlohmann::json object);

  std::string file_;
  nlohmann::json object_;
};

}  // namespace seqfuse::models
