// A child process that answers requests, a line of JSON each, and may crash or hang.
#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace seqfuse::serving {

class WorkerProcess {
 public:
  struct Limits {
    std::chrono::milliseconds start = std::chrono::seconds(300);  // to its first line
    std::chrono::milliseconds answer = std::chrono::seconds(60);
  };
  struct Answer {
    enum class Kind : int8_t { line, ended, timeout, stopped };
    Kind kind = Kind::line;
    nlohmann::json value;  // of a line
    std::string why;       // ended: "it was ended by signal 11"; timeout: after how long
  };

  // command: a program and its arguments. It reads requests on standard input, and writes a line when it is
  // ready and one for each request on standard output. stop: asked a few times a second.
  WorkerProcess(std::vector<std::string> command, Limits limits, std::function<bool()> stop)
      : command_(std::move(command)), limits_(limits), stop_(std::move(stop)) {}
  ~WorkerProcess() { end(); }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Its first line; starts it if it does not run. Throws Error if it ends or hangs before.
  Answer hello();
  // Starts it if it does not run. After `ended` and `timeout` it does not run. Throws as hello() does.
  Answer ask(const nlohmann::json& request);
  void end();  // kills it

 private:
  void start();
  Answer read_line(std::chrono::milliseconds limit);
  std::string wait();  // for its end; how it ended

  std::vector<std::string> command_;
  Limits limits_;
  std::function<bool()> stop_;
  int process_ = -1, socket_ = -1;
  std::string received_;  // behind the last line
  Answer hello_;
};

// The child's side: writes `hello`, then answers each line of standard input, until it ends. An answer with
// "ends": true is the last one.
void serve_requests(const nlohmann::json& hello,
                    const std::function<nlohmann::json(const nlohmann::json&)>& answer);

}  // namespace seqfuse::serving
