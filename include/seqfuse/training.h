// Training, one step at a time, with the model, data order, optimiser and random numbers of
// `seqfuse train` for the same configuration.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace seqfuse {

struct TrainerOptions {
  std::string task;                         // "retrieval" or "ranking"
  std::string dataset;                      // a directory made by `seqfuse preprocess`
  std::string config_file;                  // gin; configs/ has examples
  std::vector<std::string> overrides = {};  // "Class.parameter=value", over the file
  std::string device = "cpu";               // "cpu", "cuda" or "auto": a GPU if there is one
};

struct StepResult {
  int64_t step = 0;       // steps done, including this one
  double loss = 0;        // mean over positions, before the update; 0 without positions
  int64_t positions = 0;  // predictions in the loss
  int64_t tokens = 0;     // tokens of the model's input
  double learning_rate = 0;
};

// Not thread-safe. Errors are std::exceptions; what() says what was given and what was expected.
class Trainer {
 public:
  // Reads the dataset and initialises the weights from TrainerArgs.seed. Throws if a file is
  // missing or damaged, if options or configuration are invalid, and if configuration and dataset
  // do not match. Warns on standard error if a ranking task has only one label value.
  explicit Trainer(const TrainerOptions& options);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // Trains on the next batches (TrainerArgs.gradient_accumulation_steps of them): forward,
  // backward, update. Synchronises a GPU. Throws if a loss or gradient is not finite, and leaves
  // the weights unchanged.
  StepResult step();

  int64_t steps() const;        // steps done
  int64_t total_steps() const;  // steps in the configuration, for the learning-rate schedule

  // By name, in a fixed order, sharing storage with the model: float32, on its device. Names of
  // embedding tables begin with "tables.".
  std::vector<std::pair<std::string, at::Tensor>> weights() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace seqfuse
