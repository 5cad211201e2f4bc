#include "training/step_exchange.h"

#include <array>
#include <csignal>
#include <utility>

#include "models/hstu/tables.h"

namespace seqfuse::training {

StepExchange::StepExchange(distributed::ProcessGroup& group, const torch::nn::Module& module)
    : group_(group) {
  if (!group_.several()) return;
  std::vector<at::Tensor> dense;
  for (const auto& parameter : module.named_parameters()) {
    const at::Tensor& weight = parameter.value();
    const bool large =
        parameter.key().starts_with("tables.") && weight.size(0) >= models::kSparseTableRows;
    (large ? large_tables_ : dense).push_back(weight);
  }
  buckets_.emplace(group_, std::move(dense));
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
  for (const at::Tensor& table : large_tables_) distributed::sum_table_gradient(group_, table);
  return {.loss_sum = sums[0],
          .positions = static_cast<int64_t>(sums[1]),
          .tokens = static_cast<int64_t>(sums[2]),
          .signal = sums[3] > 0   ? SIGINT
                    : sums[4] > 0 ? SIGTERM
                                  : 0};
}

}  // namespace seqfuse::training
