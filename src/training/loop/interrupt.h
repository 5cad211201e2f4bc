// Turns SIGINT and SIGTERM into a request to stop after the current step.
#pragma once

#include <csignal>

namespace seqfuse::training {

// While it exists, the first signal is recorded; a second one, of either kind, takes its default
// action, so that a hanging step can still be killed. One at a time.
class InterruptGuard {
 public:
  // ignore_later: ignore further signals; torchrun sends several, and kills what does not end.
  explicit InterruptGuard(bool ignore_later = false);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The received signal, or 0.
  int signal() const;
};

}  // namespace seqfuse::training
