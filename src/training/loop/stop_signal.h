// Whether a signal has asked this run to stop.
#pragma once

#include "distributed/process_group.h"
#include "training/loop/interrupt.h"

namespace seqfuse::training {

// While it lives, SIGINT and SIGTERM stop the run after the current step. With several processes all
// must stop at the same step: the signal then counts once all know of it.
class StopSignal {
 public:
  explicit StopSignal(const distributed::ProcessGroup& group)
      : several_(group.several()), interrupt_(/*ignore_later=*/several_) {}

  // The signal that came to this process, or 0.
  int own() const { return interrupt_.signal(); }
  // That came to one of the processes, as all learnt in a step.
  void set_agreed(int signal) { agreed_ = signal; }
  // The one to stop for, or 0.
  int signal() const { return several_ ? agreed_ : own(); }

 private:
  const bool several_;
  const InterruptGuard interrupt_;
  int agreed_ = 0;
};

}  // namespace seqfuse::training
