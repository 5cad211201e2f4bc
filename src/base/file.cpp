#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace seqfuse {
namespace fs = std::filesystem;
namespace {

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, mode_t mode = 0)
      : fd_(open(path.c_str(), flags, mode)) {
    if (fd_ < 0) throw_errno(fmt::format("cannot open {}", path.string()));
  }
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void sync(const fs::path& path) {
  const Descriptor file(path, O_RDONLY | O_CLOEXEC);
  if (fsync(file.get()) != 0 && errno != EINVAL) {
    throw_errno(fmt::format("cannot flush {}", path.string()));
  }
}

void write_all(const Descriptor& out, std::string_view content, const fs::path& file) {
  while (!content.empty()) {
    const ssize_t n = write(out.get(), content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(fmt::format("cannot write {}", file.string()));
    content.remove_prefix(static_cast<size_t>(n));
  }
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    throw_error<IoError>("cannot rename {} to {}: {}", from.string(), to.string(), error.message());
  }
}

// Messages name the file that was asked for.
std::string with_name(std::string message, const std::string& temporary, const std::string& file) {
  for (size_t at = 0; (at = message.find(temporary, at)) != std::string::npos; at += file.size()) {
    message.replace(at, temporary.size(), file);
  }
  return message;
}

// make(path) writes and flushes the file.
void make_atomically(const fs::path& file, const std::function<void(const fs::path&)>& make) {
  const fs::path temporary = fmt::format("{}.tmp-{}", file.string(), getpid());
  try {
    make(temporary);
    rename_or_throw(temporary, file);
  } catch (const IoError& error) {
    unlink(temporary.c_str());
    throw IoError(with_name(error.what(), temporary.string(), file.string()));
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  sync(parent_of(file));
}

}  // namespace

std::string read_file(const fs::path& file) {
  const Descriptor in(file, O_RDONLY | O_CLOEXEC);
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = read(in.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(fmt::format("cannot read {}", file.string()));
    if (n == 0) return content;
    content.append(buffer, static_cast<size_t>(n));
  }
}

void write_file_atomically(const fs::path& file, std::string_view content) {
  make_atomically(file, [&](const fs::path& temporary) {
    const Descriptor out(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    write_all(out, content, temporary);
    if (fsync(out.get()) != 0) throw_errno(fmt::format("cannot flush {}", temporary.string()));
  });
}

void write_file_atomically(const fs::path& file,
                           const std::function<void(const fs::path&)>& write) {
  make_atomically(file, [&](const fs::path& temporary) {
    write(temporary);
    sync(temporary);
  });
}

void append_to_file(const fs::path& file, std::string_view content) {
  const Descriptor out(file, O_WRONLY | O_APPEND | O_CLOEXEC);
  struct stat before {};
  if (fstat(out.get(), &before) != 0) throw_errno(fmt::format("cannot read {}", file.string()));
  try {
    write_all(out, content, file);
  } catch (const IoError&) {
    // Otherwise the partial line would precede the next one.
    if (ftruncate(out.get(), before.st_size) != 0) {
      throw_errno(
          fmt::format("{} now ends in a partial line, which cannot be removed", file.string()));
    }
    throw;
  }
}

PendingDirectory::PendingDirectory(fs::path target)
    : target_(std::move(target)), temporary_(fmt::format("{}.tmp-{}", target_.string(), getpid())) {
  std::error_code error;
  fs::remove_all(temporary_, error);
  fs::create_directories(temporary_, error);
  if (error) {
    throw_error<IoError>("cannot create {}: {}", temporary_.string(), error.message());
  }
}

PendingDirectory::~PendingDirectory() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void PendingDirectory::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(temporary_)) sync(entry.path());
  sync(temporary_);
  std::error_code error;
  if (!fs::exists(target_, error)) {
    rename_or_throw(temporary_, target_);
    committed_ = true;
  } else if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) ==
             0) {
    // The target was complete at every moment. The temporary name now refers to the old one.
    committed_ = true;
    fs::remove_all(temporary_, error);
  } else {
    // The file system cannot exchange two names.
    const fs::path aside = fmt::format("{}.old-{}", target_.string(), getpid());
    fs::remove_all(aside, error);
    rename_or_throw(target_, aside);
    rename_or_throw(temporary_, target_);
    committed_ = true;
    fs::remove_all(aside, error);
  }
  sync(parent_of(target_));
}

}  // namespace seqfuse
