// Runs the built executable, or any command.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/paths.h"
#include "tests/temporary_directory.h"

namespace seqfuse {

struct Outcome {
  int code = 0;
  std::string out, err;  // standard output, standard error
  std::string text() const { return out + err; }
};

// A command of the shell.
inline Outcome run_in_shell(const std::string& command) {
  const TemporaryDirectory directory;
  const std::string errors = (directory.path() / "stderr").string();
  FILE* pipe = popen(("{ " + command + "\n} 2>" + errors).c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.out.append(buffer.data(), n);
  }
  outcome.code = WEXITSTATUS(pclose(pipe));
  std::ifstream in(errors);
  outcome.err.assign(std::istreambuf_iterator<char>(in), {});
  return outcome;
}

inline Outcome run_seqfuse(const std::string& arguments) {
  return run_in_shell(test::binary() + " " + arguments);
}

}  // namespace seqfuse
