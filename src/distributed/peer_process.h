// Another process of the job, if it runs on this machine: detects its end and can kill it.
#pragma once

#include <sys/types.h>

#include <string>

namespace seqfuse::distributed {

class PeerProcess {
 public:
  // The identity that this process sends to the others: "MACHINE PID START".
  static std::string self();

  // told: the other process's self(). Nothing is known about processes on other machines or in
  // other PID namespaces.
  explicit PeerProcess(const std::string& told);

  pid_t pid() const { return pid_; }
  // Whether it ran on this machine and has ended, even if its parent has not waited for it.
  bool has_ended() const;
  // Sends SIGKILL if it is on this machine; this also ends a stopped process.
  void kill() const;

 private:
  bool here_ = false;
  pid_t pid_ = 0;
  std::string start_;  // distinguishes it from a later process with the same PID
};

}  // namespace seqfuse::distributed
