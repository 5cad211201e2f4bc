#include "training/loop/batch_share.h"

#include <utility>

#include "distributed/work_balance.h"
#include "models/hstu/windows.h"

namespace seqfuse::training {
namespace {

// Tokens of a window; may include one withheld token.
int64_t tokens_of(const models::hstu::ModelSpec& spec, const data::Sample& sample) {
  const int64_t candidates = sample.num_candidates;
  return models::hstu::num_tokens(spec, 1, sample.end - sample.begin - candidates, candidates);
}

}  // namespace

BatchShare batch_share(const models::hstu::ModelSpec& spec, const distributed::ProcessGroup& group,
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
