#include "distributed/peer_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

namespace seqfuse::distributed {
namespace {

// Two processes with the same text share a PID namespace.
std::string machine() {
  std::string boot = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  return boot + "/" + std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

struct Status {
  char state = 0;     // R, S, T (stopped), Z (ended, not yet waited for), ...
  std::string start;  // ticks since boot
};

std::optional<Status> status_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // The second field, the name in brackets, may contain anything; the state follows it.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  Status status;
  fields >> status.state;
  constexpr int kFieldsBeforeStart = 18;
  for (int i = 0; i < kFieldsBeforeStart; ++i) fields >> status.start;
  fields >> status.start;
  return status;
}

}  // namespace

std::string PeerProcess::self() {
  const std::optional<Status> status = status_of(getpid());
  return fmt::format("{} {} {}", machine(), getpid(), status ? status->start : "0");
}

PeerProcess::PeerProcess(const std::string& told) {
  std::istringstream fields(told);
  std::string where;
  fields >> where >> pid_ >> start_;
  here_ = where == machine();
}

bool PeerProcess::has_ended() const {
  if (!here_) return false;
  const std::optional<Status> status = status_of(pid_);
  return !status || status->start != start_ || status->state == 'Z' || status->state == 'X';
}

void PeerProcess::kill() const {
  if (here_ && !has_ended()) ::kill(pid_, SIGKILL);
}

}  // namespace seqfuse::distributed
