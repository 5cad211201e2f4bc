// The folder OUTPUT.unfinished: the blocks of a batch that are done, until OUTPUT is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serving/batch/answered_block.h"
#include "serving/batch/request_reader.h"

namespace seqfuse::serving {

// Options and data that answers depend on, without the requests, by name: {"--top-k", "10"}.
using BatchSettings = std::vector<std::pair<std::string, std::string>>;

// Several processes may share a folder: each keeps blocks of its own. In a process, only one thread
// may call keep(); others may call find() and key_of() meanwhile.
class UnfinishedBatch {
 public:
  UnfinishedBatch(const std::filesystem::path& output, BatchSettings settings);

  // Creates the folder and writes the settings into it; call once, before all other methods. Returns
  // how many blocks an interrupted batch left. Throws UsageError if there are some, and resume is
  // false or they were made with other settings, which it names; IoError.
  int64_t open(bool resume) const;

  // Identifies the answers to these requests.
  std::string key_of(const std::vector<UserRequest>& requests) const;

  // The answers to this block; nothing if the file is missing or damaged, or has another key.
  std::optional<AnsweredBlock> find(int64_t block, const std::string& key) const;

  // Throws IoError. A power cut may damage the file, which find() then does not accept.
  void keep(int64_t block, const std::string& key, const AnsweredBlock& answers) const;

  // The answers of a kept block, whatever its key. Throws DataError if it is damaged.
  AnsweredBlock read(int64_t block) const;

  // Lets write() make the output in the folder, then moves it to its name, which thereby gets a
  // whole file, and removes the folder. Throws IoError and what write() throws.
  void finish(const std::function<void(const std::filesystem::path&)>& write) const;

  // Whether the folder holds blocks. Removes it if it does not.
  bool holds_blocks_or_remove() const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path file_of(int64_t block) const;
  int64_t blocks() const;
  void check_settings() const;

  std::filesystem::path output_, folder_;
  BatchSettings settings_;
  std::string key_;
};

}  // namespace seqfuse::serving
