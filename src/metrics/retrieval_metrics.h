// HR@K, NDCG@K and MRR from the ranks of the targets. docs/metrics.md defines them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/metrics.h"

namespace seqfuse::metrics {

struct RetrievalMetric {
  enum class Kind { hit_rate, ndcg, reciprocal_rank };
  Kind kind = Kind::reciprocal_rank;
  int64_t k = 0;  // of HR@K and NDCG@K, from 1

  double value(int64_t rank) const;  // of one target; rank 1 is best
};

// "HR@K", "NDCG@K" with K below 10^9 and without leading zeros, "MRR"; nothing for other names.
std::optional<RetrievalMetric> find_retrieval_metric(std::string_view name);

class RetrievalMetrics {
 public:
  // Throws UsageError for a name that find_retrieval_metric() does not know.
  explicit RetrievalMetrics(const std::vector<std::string>& names);

  void add(int64_t rank);  // 1 is best

  // In the order of the names; NaN if nothing was added.
  Metrics compute() const;

 private:
  struct Mean {
    std::string name;
    RetrievalMetric metric;
    double sum = 0;
  };

  std::vector<Mean> means_;
  int64_t count_ = 0;
};

}  // namespace seqfuse::metrics
