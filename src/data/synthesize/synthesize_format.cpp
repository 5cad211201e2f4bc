#include "data/synthesize/synthesize_format.h"

#include <numeric>

namespace seqfuse::data::synthetic {

void LabelTally::add(const LabelTally& other) {
  for (int outcome = 0; outcome < 2; ++outcome) {
    for (int b = 0; b < kBuckets; ++b) counts_[outcome][b] += other.counts_[outcome][b];
  }
}

double LabelTally::base_rate() const {
  const auto negatives = std::accumulate(counts_[0].begin(), counts_[0].end(), 0.0);
  const auto positives = std::accumulate(counts_[1].begin(), counts_[1].end(), 0.0);
  return positives + negatives > 0 ? positives / (positives + negatives) : 0;
}

double LabelTally::auc() const {
  double negatives = 0, positives = 0, pairs = 0;  // pairs in the right order
  for (int b = 0; b < kBuckets; ++b) {
    const auto negative = static_cast<double>(counts_[0][b]);
    const auto positive = static_cast<double>(counts_[1][b]);
    pairs += positive * (negatives + negative / 2);
    negatives += negative;
    positives += positive;
  }
  return positives * negatives > 0 ? pairs / (positives * negatives) : 0.5;
}

void Tally::add(const Tally& other) {
  events += other.events;
  transitions += other.transitions;
  for (size_t label = 0; label < labels.size(); ++label) labels[label].add(other.labels[label]);
}

}  // namespace seqfuse::data::synthetic
