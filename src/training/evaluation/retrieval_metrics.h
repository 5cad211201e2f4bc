// HR@K, NDCG@K and MRR from the ranks of the targets. docs/metrics.md defines them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/evaluation/evaluation.h"

namespace seqfuse::training {

class RetrievalMetrics {
 public:
  // names: "HR@K", "NDCG@K", "MRR". Throws UsageError for others.
  explicit RetrievalMetrics(const std::vector<std::string>& names);

  void add(int64_t rank);  // 1 is best

  // In the order of the names; NaN if nothing was added.
  Metrics compute() const;

 private:
  enum class Kind { hit_rate, ndcg, reciprocal_rank };
  struct Metric {
    std::string name;
    Kind kind;
    int64_t k;
    double sum = 0;
  };

  std::vector<Metric> metrics_;
  int64_t count_ = 0;
};

}  // namespace seqfuse::training
