#include "training/loop/interrupt.h"

namespace seqfuse::training {
namespace {

volatile std::sig_atomic_t received = 0;
struct sigaction old_interrupt {
}, old_terminate{};

void restore() {
  sigaction(SIGINT, &old_interrupt, nullptr);
  sigaction(SIGTERM, &old_terminate, nullptr);
}

void remember(int signal) {
  received = signal;
}

void remember_once(int signal) {
  received = signal;
  restore();
}

}  // namespace

InterruptGuard::InterruptGuard(bool ignore_later) {
  received = 0;
  struct sigaction action {};
  action.sa_handler = ignore_later ? remember : remember_once;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &old_interrupt);
  sigaction(SIGTERM, &action, &old_terminate);
}

InterruptGuard::~InterruptGuard() {
  restore();
}

int InterruptGuard::signal() const {
  return received;
}

}  // namespace seqfuse::training
