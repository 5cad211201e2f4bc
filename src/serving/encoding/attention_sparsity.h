// How much of a BERT's attention is near 0, for given weights and sentences.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "models/bert/model.h"

namespace seqfuse::serving {

// The share of small weights among all query-key pairs that the mask allows, by threshold, layer and head.
struct AttentionSparsity {
  std::vector<double> thresholds;
  int64_t layers = 0, heads = 0, sentences = 0, tokens = 0,
          pairs = 0;  // pairs: of one layer and head
  // [thresholds, layers, heads]: the share of pairs whose probability is below the threshold, and the
  // probability that a query gives to them, its mean over queries that see a key. NaN without a pair.
  std::vector<double> share, mass;

  double of(const std::vector<double>& values, size_t threshold, int64_t layer,
            int64_t head) const {
    return values[(threshold * static_cast<size_t>(layers) + static_cast<size_t>(layer)) *
                      static_cast<size_t>(heads) +
                  static_cast<size_t>(head)];
  }
  // The mean over the heads of a layer.
  double of_layer(const std::vector<double>& values, size_t threshold, int64_t layer) const;
};

// By plain ATen, a sentence at a time: attention takes heads * tokens^2 elements of the model's dtype, in
// which probabilities are compared. Token types are 0. thresholds: above 0, at most 1. on_sentence: called
// with the number of sentences done; false: stops, and there is no result. Throws UsageError for a threshold
// that is none.
std::optional<AttentionSparsity> attention_sparsity(
    const models::bert::Model& model, const models::bert::SequenceMask& mask,
    std::span<const std::vector<int64_t>> sentences, std::vector<double> thresholds,
    const std::function<bool(int64_t)>& on_sentence = {});

}  // namespace seqfuse::serving
