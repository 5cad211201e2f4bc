// The files of a dataset directory, to compare directories byte by byte.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/file.h"

namespace seqfuse::data {

// Content by path within the directory.
inline std::map<std::string, std::string> dataset_files(const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    files[std::filesystem::relative(entry.path(), directory).string()] = read_file(entry.path());
  }
  return files;
}

}  // namespace seqfuse::data
