// Atomic writes of files and directories: written to a temporary name beside the target, flushed to
// disk, then renamed.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace seqfuse {

// The whole file as bytes. Throws IoError naming the file.
std::string read_file(const std::filesystem::path& file);

// Replaces or creates the file. Throws IoError (disk full, read-only, ...); the old file stays
// intact.
void write_file_atomically(const std::filesystem::path& file, std::string_view content);
// The same for other writers: write() must write the whole file to the path that it gets. Its
// exceptions are passed on.
void write_file_atomically(const std::filesystem::path& file,
                           const std::function<void(const std::filesystem::path&)>& write);

// Appends all of the content or, on failure, nothing. The file must exist. Throws IoError.
void append_to_file(const std::filesystem::path& file, std::string_view content);

// A directory under construction. The final name appears only in commit().
class PendingDirectory {
 public:
  // Creates "TARGET.tmp-PID" beside the target. Throws IoError if it cannot.
  explicit PendingDirectory(std::filesystem::path target);
  ~PendingDirectory();  // removes what was not committed
  PendingDirectory(const PendingDirectory&) = delete;
  PendingDirectory& operator=(const PendingDirectory&) = delete;

  const std::filesystem::path& path() const { return temporary_; }  // write here
  // Flushes every file, then renames. Replaces an existing target by exchanging the two names and
  // removing the old one. Throws IoError.
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  bool committed_ = false;
};

}  // namespace seqfuse
