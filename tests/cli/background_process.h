// Runs seqfuse in the background, in one or several processes, for tests that disturb it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "tests/cli/seqfuse_process.h"
#include "tests/free_port.h"
#include "tests/paths.h"
#include "tests/temporary_directory.h"

namespace seqfuse {

inline std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// A background command with its output in a file. The destructor kills it.
class Background {
 public:
  explicit Background(const std::vector<std::string>& command,
                      const std::map<std::string, std::string>& environment = {}) {
    const std::string file = output_file();
    pid_ = fork();
    if (pid_ != 0) return;
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::freopen(file.c_str(), "w", stderr);
    dup2(2, 1);
    std::vector<char*> pointers;
    for (const std::string& word : command) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    execv(pointers[0], pointers.data());
    _exit(127);
  }

  ~Background() {
    if (waited_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  pid_t pid() const { return pid_; }
  // Its output so far.
  std::string output() const {
    return std::filesystem::exists(output_file()) ? read_file(output_file()) : "";
  }

  bool ended() const {
    siginfo_t end{};
    waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG | WNOWAIT);
    return end.si_pid != 0;
  }

  // Waits until it prints this; fails if it ends or a minute passes before.
  void wait_for(const std::string& text) const {
    for (int wait = 0; wait < 6000 && output().find(text) == std::string::npos && !ended();
         ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_NE(output().find(text), std::string::npos) << "not printed: " << text << "\n"
                                                      << output();
  }

  // code: the exit code, or 128 + the signal.
  Outcome wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    waited_ = true;
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .out = read_file(output_file()),
            .err = {}};
  }

 private:
  std::string output_file() const { return (directory_.path() / "output").string(); }

  TemporaryDirectory directory_;
  pid_t pid_;
  bool waited_ = false;
};

// Starts this number of seqfuse processes without torchrun: rank 0 serves the store.
// environment: additional variables of each process.
inline Outcome in_processes(int size, const std::string& arguments,
                            const std::map<std::string, std::string>& environment = {}) {
  std::vector<std::string> command = words_of(arguments);
  command.insert(command.begin(), test::binary());
  if (size == 1) return Background(command, environment).wait();
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Background>> processes;
  for (int rank = 0; rank < size; ++rank) {
    std::map<std::string, std::string> variables = {{"RANK", std::to_string(rank)},
                                                    {"WORLD_SIZE", std::to_string(size)},
                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                    {"MASTER_PORT", port}};
    variables.insert(environment.begin(), environment.end());
    processes.push_back(std::make_unique<Background>(command, variables));
  }
  Outcome all;
  for (const auto& process : processes) {
    const Outcome one = process->wait();
    all.code = std::max(all.code, one.code);
    all.out += one.out;
  }
  return all;
}

}  // namespace seqfuse
