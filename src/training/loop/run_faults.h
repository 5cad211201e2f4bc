// Handles failures of a step or an evaluation: saves what is still consistent, and throws an error
// that says what failed, where, and what to do.
#pragma once

#include <exception>
#include <string>

#include "distributed/process_group.h"
#include "training/checkpoint/run_writer.h"
#include "training/loop/checkpoint_saver.h"
#include "training/loop/not_finite.h"
#include "training/loop/step_runner.h"
#include "training/loop/step_update.h"
#include "training/loop/training_state.h"

namespace seqfuse::training {

class RunFaults {
 public:
  // All references must outlive it.
  RunFaults(TrainingState& state, StepRunner& steps, StepUpdate& update, CheckpointSaver& saver,
            const distributed::ProcessGroup& group, const RunWriter& writer, at::Device device);

  // Call from a catch block. Rethrows the error unless memory ran out or data are damaged; then it
  // saves and throws an explanation. what: "step 7".
  [[noreturn]] void stop(const std::exception& error, const std::string& what,
                         const std::string& advice);

  // Saves nothing that is not finite. epoch: of the failed batch.
  [[noreturn]] void stop(const NotFinite& error, int64_t epoch);

 private:
  std::string save_after_fault();

  TrainingState& state_;
  StepRunner& steps_;
  StepUpdate& update_;
  CheckpointSaver& saver_;
  const distributed::ProcessGroup& group_;
  const RunWriter& writer_;
  const at::Device device_;
};

}  // namespace seqfuse::training
