// Detects signals that ask the run to stop.
#pragma once

#include "distributed/process_group.h"
#include "training/loop/interrupt.h"

namespace seqfuse::training {

// While it exists, SIGINT and SIGTERM stop the run after the current step. With several processes,
// which must stop at the same step, a signal counts once all know of it.
class StopSignal {
 public:
  explicit StopSignal(const distributed::ProcessGroup& group)
      : several_(group.several()), interrupt_(/*ignore_later=*/several_) {}

  // The signal received by this process, or 0.
  int own() const { return interrupt_.signal(); }
  // Sets the signal that processes agreed on in a step's exchange.
  void set_agreed(int signal) { agreed_ = signal; }
  // The signal to stop for, or 0.
  int signal() const { return several_ ? agreed_ : own(); }

 private:
  const bool several_;
  const InterruptGuard interrupt_;
  int agreed_ = 0;
};

}  // namespace seqfuse::training
