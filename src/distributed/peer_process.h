// Another process of the job, if it runs on this machine: whether it has ended, and ending it.
#pragma once

#include <sys/types.h>

#include <string>

namespace seqfuse::distributed {

class PeerProcess {
 public:
  // What this process tells the others of itself: "MACHINE PID START".
  static std::string self();

  // From what it told. Of another machine or PID namespace nothing can be said.
  explicit PeerProcess(const std::string& told);

  pid_t pid() const { return pid_; }
  bool on_this_machine() const { return here_; }
  // Of this machine, and it has exited or been killed, whether or not its parent has noticed.
  bool has_ended() const;
  // Of this machine: SIGKILL, which also ends a stopped process.
  void kill() const;

 private:
  bool here_ = false;
  pid_t pid_ = 0;
  std::string start_;  // tells it from a later process of the same number
};

}  // namespace seqfuse::distributed
