#include "training/loop/run_faults.h"

#include <fmt/format.h>

#include "base/error.h"
#include "training/device/out_of_memory.h"

namespace seqfuse::training {

RunFaults::RunFaults(TrainingState& state, StepRunner& steps, StepUpdate& update,
                     CheckpointSaver& saver, const distributed::ProcessGroup& group,
                     const RunWriter& writer, at::Device device)
    : state_(state),
      steps_(steps),
      update_(update),
      saver_(saver),
      group_(group),
      writer_(writer),
      device_(device) {}

void RunFaults::stop(const std::exception& error, const std::string& what,
                     const std::string& advice) {
  if (is_out_of_memory(error)) {
    throw_error("out of memory in {}: {}\n  {}{}", what, message_of(error), save_after_fault(),
                advice);
  }
  if (dynamic_cast<const DataError*>(&error) == nullptr) throw;
  throw_error<DataError>("{}\n  found in {}; {}; then --resume", error.what(), what,
                         save_after_fault());
}

void RunFaults::stop(const NotFinite& error, int64_t epoch) {
  throw_error(
      "{} (epoch {}); {}\n  lower OptimizerArgs.learning_rate, set max_grad_norm, or add "
      "warmup_steps",
      error.what(), epoch, writer_.last_checkpoint());
}

std::string RunFaults::save_after_fault() {
  if (update_.is_updating()) {
    return "the update was under way, so the weights may be half changed and are not saved; " +
           writer_.last_checkpoint();
  }
  // Other processes' state is unknown.
  if (group_.several()) return writer_.last_checkpoint();
  if (saver_.saved_step() != state_.step) {
    update_.optimizer().zero_gradients();
    steps_.stop_graphs();  // frees their memory
    release_cached_memory(device_);
    try {
      saver_.save(state_, /*last=*/true);
    } catch (const std::exception& error) {
      return fmt::format("the state after step {} could not be saved either ({}); {}", state_.step,
                         message_of(error), writer_.last_checkpoint());
    }
  }
  return fmt::format("the state after step {} is saved in {}", state_.step,
                     writer_.path().string());
}

}  // namespace seqfuse::training
