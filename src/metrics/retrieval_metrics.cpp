#include "metrics/retrieval_metrics.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace seqfuse::metrics {

double RetrievalMetric::value(int64_t rank) const {
  switch (kind) {
    case Kind::hit_rate:
      return rank <= k ? 1 : 0;
    case Kind::ndcg:
      return rank <= k ? 1 / std::log2(static_cast<double>(rank) + 1) : 0;
    case Kind::reciprocal_rank:
      break;
  }
  return 1 / static_cast<double>(rank);
}

std::optional<RetrievalMetric> find_retrieval_metric(std::string_view name) {
  using Kind = RetrievalMetric::Kind;
  if (name == "MRR") return RetrievalMetric{.kind = Kind::reciprocal_rank};
  const size_t at = name.find('@');
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view kind = name.substr(0, at), cut = name.substr(at + 1);
  if (kind != "HR" && kind != "NDCG") return std::nullopt;
  int64_t k = 0;
  const auto parsed = std::from_chars(cut.data(), cut.data() + cut.size(), k);
  const bool whole = parsed.ec == std::errc{} && parsed.ptr == cut.data() + cut.size();
  if (!whole || k < 1 || cut[0] == '0' || cut.size() > 9) return std::nullopt;
  return RetrievalMetric{.kind = kind == "HR" ? Kind::hit_rate : Kind::ndcg, .k = k};
}

RetrievalMetrics::RetrievalMetrics(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::optional<RetrievalMetric> metric = find_retrieval_metric(name);
    SEQFUSE_CHECK_AS(
        UsageError, metric.has_value(),
        "unknown retrieval metric '{}': expected HR@K, NDCG@K (K a positive number) or MRR", name);
    means_.push_back({.name = name, .metric = *metric});
  }
}

void RetrievalMetrics::add(int64_t rank) {
  ++count_;
  for (Mean& mean : means_) mean.sum += mean.metric.value(rank);
}

Metrics RetrievalMetrics::compute() const {
  Metrics result;
  for (const Mean& mean : means_) {
    result.emplace_back(mean.name, count_ > 0 ? mean.sum / static_cast<double>(count_)
                                              : std::numeric_limits<double>::quiet_NaN());
  }
  return result;
}

}  // namespace seqfuse::metrics
