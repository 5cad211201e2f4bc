// Training, one step at a time: the model, data order, optimiser and random numbers are those of
// `seqfuse train` with the same configuration.
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
  int64_t step = 0;       // steps done, with this one
  double loss = 0;        // mean over positions, before the update; 0 without positions
  int64_t positions = 0;  // predictions that the loss is over
  int64_t tokens = 0;     // rows of the model's input
  double learning_rate = 0;
};

// Not for several threads at once. Errors are std::exceptions whose what() says what was given and
// what was expected.
class Trainer {
 public:
  // Reads the data set and initialises the weights from TrainerArgs.seed. Throws where a file is
  // missing or damaged, where options or configuration are wrong, and where configuration and data
  // set do not fit each other.
  explicit Trainer(const TrainerOptions& options);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // The next batches (TrainerArgs.gradient_accumulation_steps of them), forward, backward, update.
  // Waits for a GPU. Throws where a loss or gradient is not finite, with the weights as they were.
  StepResult step();

  int64_t steps() const;  // done
  int64_t total_steps()
      const;  // that the configuration asks for: the schedule of the learning rate

  // By name, in a fixed order, sharing storage with the model: float32, on its device. Tables of
  // embeddings begin with "tables.".
  std::vector<std::pair<std::string, at::Tensor>> weights() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace seqfuse
