#include "training/evaluation/retrieval_metrics.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/error.h"

namespace seqfuse::training {

RetrievalMetrics::RetrievalMetrics(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name == "MRR") {
      metrics_.push_back({name, Kind::reciprocal_rank, 0});
      continue;
    }
    const size_t at = name.find('@');
    const std::string_view kind = std::string_view(name).substr(0, at);
    int64_t k = 0;
    if (at != std::string::npos) {
      const char* end = name.data() + name.size();
      const auto parsed = std::from_chars(name.data() + at + 1, end, k);
      if (parsed.ec != std::errc{} || parsed.ptr != end) k = 0;
    }
    if (k < 1 || (kind != "HR" && kind != "NDCG")) {
      throw_error<UsageError>(
          "unknown retrieval metric '{}': expected HR@K, NDCG@K (K a positive number) or MRR",
          name);
    }
    metrics_.push_back({name, kind == "HR" ? Kind::hit_rate : Kind::ndcg, k});
  }
}

void RetrievalMetrics::add(int64_t rank) {
  ++count_;
  for (Metric& metric : metrics_) {
    switch (metric.kind) {
      case Kind::hit_rate:
        metric.sum += rank <= metric.k ? 1 : 0;
        break;
      case Kind::ndcg:
        metric.sum += rank <= metric.k ? 1 / std::log2(static_cast<double>(rank) + 1) : 0;
        break;
      case Kind::reciprocal_rank:
        metric.sum += 1 / static_cast<double>(rank);
        break;
    }
  }
}

Metrics RetrievalMetrics::compute() const {
  Metrics result;
  for (const Metric& metric : metrics_) {
    result.emplace_back(metric.name, count_ > 0 ? metric.sum / static_cast<double>(count_)
                                                : std::numeric_limits<double>::quiet_NaN());
  }
  return result;
}

}  // namespace seqfuse::training
