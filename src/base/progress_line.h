// A line about work that goes on, printed at regular intervals however long a step of the work takes.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace seqfuse {

// Prints what text() returns to stderr until it is destroyed: rewritten in place on a terminal, plain
// lines elsewhere.
class ProgressLine {
 public:
  struct Intervals {
    std::chrono::milliseconds terminal{1000}, elsewhere{10'000};
  };

  // text is called in another thread.
  ProgressLine(std::string tag, std::function<std::string()> text)
      : ProgressLine(std::move(tag), std::move(text), Intervals()) {}
  ProgressLine(std::string tag, std::function<std::string()> text, Intervals intervals);
  ~ProgressLine();  // clears the terminal's line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  std::jthread printing_;
};

}  // namespace seqfuse
