// The bytes of a plain file or of standard input, as they come.
#pragma once

#include <filesystem>
#include <functional>

#include "data/read/input.h"

namespace seqfuse::serving {

class FileStream final : public data::ByteStream {
 public:
  // file: "-" is standard input. interrupted is called when a signal ends a wait for bytes; what it
  // throws ends the reading. Throws IoError if the file cannot be opened.
  FileStream(const std::filesystem::path& file, std::function<void()> interrupted);
  ~FileStream() override;
  FileStream(const FileStream&) = delete;
  FileStream& operator=(const FileStream&) = delete;

  size_t read(char* out, size_t size) override;
  int64_t size() const { return size_; }  // bytes; 0 if it is not known

 private:
  std::filesystem::path file_;
  std::function<void()> interrupted_;
  int descriptor_;
  int64_t size_ = 0;
};

}  // namespace seqfuse::serving
