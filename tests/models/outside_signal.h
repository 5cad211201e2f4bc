// Signals to the tests while one of them trains.
#pragma once

#include <csignal>

#include "training/loop/trainer.h"

namespace seqfuse::training {

// Training takes SIGINT and SIGTERM as requests to stop. One from outside, such as that of
// `timeout`, is for the tests as a whole: this ends them, so that no test fails because its run was
// too short. own_signal: the one that the test itself sent.
inline TrainResult unless_stopped_from_outside(TrainResult result, int own_signal = 0) {
  if (result.signal != 0 && result.signal != own_signal) std::raise(result.signal);
  return result;
}

}  // namespace seqfuse::training
