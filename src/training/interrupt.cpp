#include "training/interrupt.h"

namespace seqfuse::training {
namespace {

volatile std::sig_atomic_t received = 0;

void remember(int signal) {
  received = signal;
}

}  // namespace

InterruptGuard::InterruptGuard(bool ignore_later) {
  received = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = (ignore_later ? 0 : static_cast<int>(SA_RESETHAND)) | SA_RESTART;
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
}

int InterruptGuard::signal() const {
  return received;
}

}  // namespace seqfuse::training
