// SIGINT and SIGTERM as a request to stop after the current step.
#pragma once

#include <csignal>

namespace seqfuse::training {

// While it lives, the first signal is remembered; a second one, of either kind, acts as if there
// were no guard, so that a step that hangs can still be killed. One at a time.
class InterruptGuard {
 public:
  // ignore_later: a second one is ignored; torchrun sends several, and kills what does not end.
  explicit InterruptGuard(bool ignore_later = false);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that came, or 0.
  int signal() const;
};

}  // namespace seqfuse::training
