// The folder OUTPUT.unfinished: the blocks of a batch that are done, until OUTPUT is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "serving/batch/answered_block.h"
#include "serving/batch/request_reader.h"

namespace seqfuse::serving {

// Several processes may keep blocks of the same folder, each its own ones. Of a process, keep() is
// for one thread, find() and key_of() may run beside it.
class UnfinishedBatch {
 public:
  // key: what the answers depend on beside the requests, as one line.
  UnfinishedBatch(const std::filesystem::path& output, std::string key);

  // Creates the folder; call once, before all other methods. Returns how many blocks an interrupted
  // batch left. Throws UsageError if there are some and resume is false, IoError.
  int64_t open(bool resume) const;

  // What the answers to these requests are known by.
  std::string key_of(const std::vector<UserRequest>& requests) const;

  // The answers to this block, if they are there and whole and have this key.
  std::optional<AnsweredBlock> find(int64_t block, const std::string& key) const;

  // Throws IoError. A power cut may damage the file, which find() then does not accept.
  void keep(int64_t block, const std::string& key, const AnsweredBlock& answers) const;

  // Of a block that is kept, whatever it answers. Throws DataError if it is damaged.
  AnsweredBlock read(int64_t block) const;

  // Lets write() make the output in the folder, then moves it to its name, which thereby gets a
  // whole file, and removes the folder. Throws IoError and what write() throws.
  void finish(const std::function<void(const std::filesystem::path&)>& write) const;

  // Removes the folder if it holds no block. Returns whether it does.
  bool holds_blocks_or_remove() const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path file_of(int64_t block) const;
  int64_t blocks() const;

  std::filesystem::path output_, folder_;
  std::string key_;
};

}  // namespace seqfuse::serving
