// Sentences, as ids of tokens, to one vector each.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "models/bert/model.h"
#include "models/bert/plan.h"

namespace seqfuse::serving {

enum class Pooling {
  cls,  // the last hidden state of the first token
  mean  // the mean of those of all tokens
};

struct SentenceOptions {
  Pooling pooling = Pooling::cls;
  bool normalize = false;        // to length 1; a vector of zeros stays
  int64_t batch_tokens = 16384;  // at most so many tokens are computed together
  // Runs batches of its shape; others run the program without a plan. Null: none. Must outlive the encoder.
  const models::bert::PlannedProgram* plan = nullptr;
};

class SentenceEncoder {
 public:
  // The model must outlive this object.
  SentenceEncoder(const models::bert::Model& model, models::bert::SequenceMask mask,
                  SentenceOptions options)
      : model_(model), mask_(std::move(mask)), options_(options) {}

  // float32 [sentences, H] on the CPU, in the order of the sentences, computed in batches by length.
  // Token types are 0. With a plan, throws UsageError if no batch has its shape. on_batch: called with the number of sentences done; false: stops, and there is no
  // result. Throws UsageError for a sentence that is empty or longer than the model, and for ids outside
  // the vocabulary, with the number of the sentence, counted from first_number.
  std::optional<at::Tensor> encode(std::span<const std::vector<int64_t>> sentences,
                                   int64_t first_number = 1,
                                   const std::function<bool(int64_t)>& on_batch = {}) const;

  // Batches so far, and those among them that the plan ran.
  int64_t batches() const { return batches_; }
  int64_t planned_batches() const { return planned_batches_; }

 private:
  at::Tensor encode_batch(std::span<const std::vector<int64_t>> sentences,
                          std::span<const int64_t> batch) const;

  void check_plan(std::span<const int64_t> lengths,
                  std::span<const std::vector<int64_t>> batches) const;

  const models::bert::Model& model_;
  models::bert::SequenceMask mask_;
  SentenceOptions options_;
  mutable int64_t batches_ = 0, planned_batches_ = 0;
};

}  // namespace seqfuse::serving
