#include "training/batch_share.h"

#include <utility>

#include "distributed/work_balance.h"

namespace seqfuse::training {
namespace {

// Tokens of a window; at most one that is withheld is counted too.
int64_t tokens_of(const models::ModelSpec& spec, const data::Sample& sample) {
  const int64_t events = sample.end - sample.begin;
  if (spec.network.architecture == "hstu_research") return events;
  const int64_t history = events - sample.num_candidates;
  return static_cast<int64_t>(spec.context.size()) + history * (spec.num_actions > 0 ? 2 : 1) +
         sample.num_candidates;
}

}  // namespace

BatchShare batch_share(const models::ModelSpec& spec, const distributed::ProcessGroup& group,
                       bool balanced) {
  if (!group.several()) return {};
  const int rank = group.rank(), size = group.size();
  if (!balanced) {
    return [rank, size](std::span<const data::Sample> samples) {
      return distributed::deal_by_count(std::ssize(samples), size)[rank];
    };
  }
  const auto work = distributed::WorkModel::of_hstu(spec.network.hidden_size);
  return [spec, work, rank, size](std::span<const data::Sample> samples) {
    std::vector<double> costs;
    costs.reserve(samples.size());
    for (const data::Sample& sample : samples) costs.push_back(work.cost(tokens_of(spec, sample)));
    return distributed::deal_by_cost(costs, size)[rank];
  };
}

}  // namespace seqfuse::training
