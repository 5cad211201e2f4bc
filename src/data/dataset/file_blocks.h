// Detects changes of a memory-mapped file by a hash of each of its blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace seqfuse::data {

// Damage to a mapped file would go unnoticed, and truncation or a failing disk would kill the
// process (SIGBUS). Reading blocks through the file first turns both into errors; the check and the
// later use read the same pages of memory. The hashes take one thousandth of the file's size.
class FileBlocks {
 public:
  static constexpr int64_t kBlock = 4096;

  // Reads the file once. Throws IoError.
  explicit FileBlocks(const std::filesystem::path& file);
  ~FileBlocks();
  FileBlocks(const FileBlocks&) = delete;
  FileBlocks& operator=(const FileBlocks&) = delete;

  // Hash of the whole file, equal to hash_file().
  const std::string& hash() const { return hash_; }

  // Throws DataError naming the file and the bytes if a block has changed. Thread-safe.
  void check(int64_t block) const;

 private:
  std::string name_, hash_;
  int fd_ = -1;
  int64_t bytes_ = 0;
  std::vector<uint32_t> hashes_;  // truncated, one per block
};

}  // namespace seqfuse::data
