#include "training/loop/step_exchange.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>
#include <vector>

namespace seqfuse::training {

StepExchange::StepExchange(distributed::ProcessGroup& group, const models::Model& model)
    : group_(group), tables_(model.tables()) {
  if (!group_.several()) return;
  std::vector<at::Tensor> summed;
  for (const at::Tensor& weight : model.parameters()) {
    const auto table = std::find_if(tables_.begin(), tables_.end(), [&](const auto* each) {
      return each->weight().is_same(weight);
    });
    if (table == tables_.end() || (*table)->gradient_is_summed_by_caller()) {
      summed.push_back(weight);
    }
  }
  buckets_.emplace(group_, std::move(summed));
}

void StepExchange::start() {
  if (buckets_) buckets_->start();
}

StepExchange::Totals StepExchange::finish(const Totals& mine) {
  if (!buckets_) return mine;
  std::array<double, 5> sums = {mine.loss_sum, static_cast<double>(mine.positions),
                                static_cast<double>(mine.tokens), mine.signal == SIGINT ? 1.0 : 0.0,
                                mine.signal == SIGTERM ? 1.0 : 0.0};
  buckets_->finish(sums);
  // Not earlier: one process may have sent buckets in its backward pass while another had none.
  for (embeddings::EmbeddingTable* table : tables_) table->return_gradients();
  return {.loss_sum = sums[0],
          .positions = static_cast<int64_t>(sums[1]),
          .tokens = static_cast<int64_t>(sums[2]),
          .signal = sums[3] > 0   ? SIGINT
                    : sums[4] > 0 ? SIGTERM
                                  : 0};
}

}  // namespace seqfuse::training
