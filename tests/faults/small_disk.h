// A disk of a given size: a tmpfs visible only to this process and its children.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/temporary_directory.h"

namespace seqfuse {

class SmallDisk {
 public:
  // If it cannot be created, why() returns the reason.
  explicit SmallDisk(int64_t bytes) {
    const std::string size = "size=" + std::to_string(bytes);
    if (!own_mounts() || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", path().c_str(), "tmpfs", 0, size.c_str()) != 0) {
      why_ = std::string("no file system can be mounted here: ") + std::strerror(errno);
    }
  }
  ~SmallDisk() {
    if (why_.empty()) umount2(path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  const std::string& why() const { return why_; }
  std::string path() const { return directory_.path().string(); }

 private:
  // As root, or as root of a user namespace if these are allowed.
  static bool own_mounts() {
    if (unshare(CLONE_NEWNS) == 0) return true;
    const uid_t user = getuid(), group = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
    return true;
  }

  TemporaryDirectory directory_;
  std::string why_;
};

}  // namespace seqfuse
