// HR@K, NDCG@K and MRR against their definitions.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "metrics/retrieval_metrics.h"

namespace seqfuse::metrics::metrics_retrieval_test {
namespace {

TEST(RetrievalMetrics, Definitions) {
  RetrievalMetrics metrics({"HR@2", "NDCG@2", "MRR"});
  for (const int64_t rank : {1, 2, 3, 10}) metrics.add(rank);
  const Metrics values = metrics.compute();
  EXPECT_EQ(values[0].first, "HR@2");
  EXPECT_DOUBLE_EQ(values[0].second, 0.5);
  EXPECT_DOUBLE_EQ(values[1].second, (1 + 1 / std::log2(3.0)) / 4);
  EXPECT_DOUBLE_EQ(values[2].second, (1 + 0.5 + 1.0 / 3 + 0.1) / 4);
}

TEST(RetrievalMetrics, UnknownNamesAreRefused) {
  for (const char* name :
       {"HR", "HR@", "HR@0", "HR@-1", "HR@10x", "HR@01", "HR@1234567890", "AUC", "", "mrr"}) {
    EXPECT_THROW(RetrievalMetrics({name}), UsageError) << name;
  }
}

}  // namespace
}  // namespace seqfuse::metrics::metrics_retrieval_test
