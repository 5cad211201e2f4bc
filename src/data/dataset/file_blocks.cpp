#include "data/dataset/file_blocks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/hash.h"

namespace seqfuse::data {
namespace {

constexpr int64_t kBlocksAtOnce = 256;  // per read when the file is hashed

// Number of bytes read, fewer at the end of the file; -1 if the read failed (errno).
int64_t read_at(int fd, int64_t offset, char* data, int64_t bytes) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t n = pread(fd, data + done, static_cast<size_t>(bytes - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += n;
  }
  return done;
}

uint32_t short_hash(std::string_view bytes) {
  return static_cast<uint32_t>(hash64(bytes));
}

}  // namespace

FileBlocks::FileBlocks(const std::filesystem::path& file)
    : name_(file.string()), fd_(open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) throw_errno(fmt::format("cannot open {}", name_));
  Hasher hasher;
  std::vector<char> buffer(kBlocksAtOnce * kBlock);
  for (;;) {
    const int64_t n = read_at(fd_, bytes_, buffer.data(), std::ssize(buffer));
    if (n < 0) {
      close(fd_);
      throw_errno(fmt::format("cannot read {}", name_));
    }
    const std::string_view bytes(buffer.data(), static_cast<size_t>(n));
    hasher.update(bytes);
    for (size_t begin = 0; begin < bytes.size(); begin += kBlock) {
      hashes_.push_back(short_hash(bytes.substr(begin, kBlock)));
    }
    bytes_ += n;
    if (n < std::ssize(buffer)) break;
  }
  hash_ = hasher.text();
}

FileBlocks::~FileBlocks() {
  close(fd_);
}

void FileBlocks::check(int64_t block) const {
  std::array<char, kBlock> buffer;
  const int64_t begin = block * kBlock, expected = std::min(kBlock, bytes_ - begin);
  const int64_t n = read_at(fd_, begin, buffer.data(), expected);
  const auto fail = [&](const std::string& why) {
    throw_error<DataError>(
        "{} is damaged: {} since it was opened\n"
        "  copy it again, or run `seqfuse preprocess` again",
        name_, why);
  };
  if (n < 0) {
    fail(fmt::format("bytes {} to {} can no longer be read ({})", begin, begin + expected,
                     std::generic_category().message(errno)));
  }
  if (n < expected) {
    fail(fmt::format("it had {} bytes and was truncated to {}", bytes_, begin + n));
  }
  if (short_hash({buffer.data(), static_cast<size_t>(n)}) != hashes_[static_cast<size_t>(block)]) {
    fail(fmt::format("bytes {} to {} have changed", begin, begin + expected));
  }
}

}  // namespace seqfuse::data
