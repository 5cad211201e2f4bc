// Whether a file that is mapped into memory is still what it was: a hash of each of its blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace seqfuse::data {

// A mapped file that is damaged later would be read as it is, and one that is cut off, or that a
// disk no longer gives, ends the process (SIGBUS). Reading blocks through the file first turns both
// into errors. The check and the use read the same pages of memory. One thousandth of the file's
// size is kept.
class FileBlocks {
 public:
  static constexpr int64_t kBlock = 4096;

  // Reads the file once. Throws IoError.
  explicit FileBlocks(const std::filesystem::path& file);
  ~FileBlocks();
  FileBlocks(const FileBlocks&) = delete;
  FileBlocks& operator=(const FileBlocks&) = delete;

  // Of the whole file, as hash_file().
  const std::string& hash() const { return hash_; }

  // Throws DataError naming the file and the bytes if a block is not what it was. Any thread.
  void check(int64_t block) const;

 private:
  std::string name_, hash_;
  int fd_ = -1;
  int64_t bytes_ = 0;
  std::vector<uint32_t> hashes_;  // a block's, shortened
};

}  // namespace seqfuse::data
