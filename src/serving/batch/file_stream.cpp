#include "serving/batch/file_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace seqfuse::serving {

FileStream::FileStream(const std::filesystem::path& file, std::function<void()> interrupted)
    : file_(file),
      interrupted_(std::move(interrupted)),
      descriptor_(file == "-" ? STDIN_FILENO : open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw_errno(fmt::format("cannot open {}", file.string()));
  struct stat found {};
  if (fstat(descriptor_, &found) == 0 && S_ISREG(found.st_mode)) size_ = found.st_size;
}

FileStream::~FileStream() {
  if (descriptor_ != STDIN_FILENO) close(descriptor_);
}

size_t FileStream::read(char* out, size_t size) {
  size_t done = 0;
  while (done < size) {
    // Unlike read(), poll() always returns when a signal comes.
    pollfd wait{.fd = descriptor_, .events = POLLIN, .revents = 0};
    ssize_t n = poll(&wait, 1, -1);
    if (n >= 0) n = ::read(descriptor_, out + done, size - done);
    if (n < 0 && errno == EINTR) {
      if (interrupted_) interrupted_();
      continue;
    }
    if (n < 0) throw_errno(fmt::format("cannot read {}", file_.string()));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

}  // namespace seqfuse::serving
