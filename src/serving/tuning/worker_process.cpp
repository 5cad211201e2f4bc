#include "serving/tuning/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iostream>
#include <utility>

#include "base/error.h"

namespace seqfuse::serving {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Kind = WorkerProcess::Answer::Kind;

constexpr std::chrono::milliseconds kBetweenQuestions{100};  // whether to stop

std::string line_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

void WorkerProcess::start() {
  end();
  std::vector<char*> arguments;
  for (std::string& argument : command_) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  std::array<int, 2> sockets{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0)
    throw_errno("cannot make a socket for measurements");
  process_ = fork();
  if (process_ == 0) {  // only calls that are safe after a fork of several threads
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);  // Ctrl-C is for the parent, which decides
    dup2(sockets[1], STDIN_FILENO);
    dup2(sockets[1], STDOUT_FILENO);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(sockets[1]);
  socket_ = sockets[0];
  received_.clear();
  if (process_ < 0) throw_errno("cannot start a process for measurements");
  hello_ = read_line(limits_.start);
  if (hello_.kind == Kind::stopped) return;
  SEQFUSE_CHECK(hello_.kind == Kind::line, "the process for measurements did not start: {}",
                hello_.why);
}

void WorkerProcess::end() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    wait();
  }
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

std::string WorkerProcess::wait() {
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  if (WIFSIGNALED(status)) return fmt::format("it was ended by signal {}", WTERMSIG(status));
  return fmt::format("it ended with exit code {}", WEXITSTATUS(status));
}

WorkerProcess::Answer WorkerProcess::read_line(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  for (;;) {
    if (const size_t end_of_line = received_.find('\n'); end_of_line != std::string::npos) {
      const std::string line = received_.substr(0, end_of_line);
      received_.erase(0, end_of_line + 1);
      json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (value.is_object()) return {.kind = Kind::line, .value = std::move(value), .why = {}};
      continue;  // what a library printed
    }
    if (stop_()) {
      end();
      return {.kind = Kind::stopped, .value = {}, .why = "stopped"};
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      end();
      return {.kind = Kind::timeout,
              .value = {},
              .why = fmt::format("no answer within {:.1f} s",
                                 std::chrono::duration<double>(limit).count())};
    }
    pollfd events{.fd = socket_, .events = POLLIN, .revents = 0};
    if (poll(&events, 1, static_cast<int>(std::min(left, kBetweenQuestions).count())) <= 0)
      continue;
    std::array<char, 4096> buffer;
    const ssize_t count = read(socket_, buffer.data(), buffer.size());
    if (count > 0) {
      received_.append(buffer.data(), static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      const std::string why = wait();
      end();
      return {.kind = Kind::ended, .value = {}, .why = why};
    }
  }
}

WorkerProcess::Answer WorkerProcess::hello() {
  if (process_ < 0) start();
  return hello_;
}

WorkerProcess::Answer WorkerProcess::ask(const json& request) {
  if (process_ < 0) {
    start();
    if (hello_.kind == Kind::stopped) return hello_;
  }
  const std::string line = line_of(request);
  // A process that has ended shows when its answer is read.
  [[maybe_unused]] const ssize_t sent = send(socket_, line.data(), line.size(), MSG_NOSIGNAL);
  Answer answer = read_line(limits_.answer);
  if (answer.kind == Kind::line && answer.value.value("ends", false)) end();
  return answer;
}

void serve_requests(const json& hello, const std::function<json(const json&)>& answer) {
  std::cout << line_of(hello) << std::flush;
  std::string line;
  while (std::getline(std::cin, line)) {
    const json reply = answer(json::parse(line));
    std::cout << line_of(reply) << std::flush;
    if (reply.value("ends", false)) return;
  }
}

}  // namespace seqfuse::serving
