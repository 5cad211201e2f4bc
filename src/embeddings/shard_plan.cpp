#include "embeddings/shard_plan.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"

namespace seqfuse::embeddings {
namespace {

constexpr int64_t kWord = 0xffffffff, kMultiplier = 0x45d9f3b;
constexpr int64_t kBlock = 1 << 20;  // ids at a time

}  // namespace

// 32-bit shifts and products in 64-bit integers, so that nothing is negative or overflows.
at::Tensor owner_of(const at::Tensor& ids, int64_t processes) {
  at::Tensor word = ids;
  for (int round = 0; round < 2; ++round) {
    word = word.__rshift__(16).bitwise_xor_(word).mul_(kMultiplier).bitwise_and_(kWord);
  }
  return word.__rshift__(16).bitwise_xor_(word).remainder_(processes);
}

at::Tensor ids_of(int64_t rank, int64_t processes, int64_t num_rows) {
  std::vector<at::Tensor> parts = {torch::empty({0}, torch::kLong)};
  for (int64_t begin = 0; begin < num_rows; begin += kBlock) {
    const at::Tensor block = torch::arange(begin, std::min(num_rows, begin + kBlock), torch::kLong);
    parts.push_back(block.masked_select(owner_of(block, processes).eq(rank)));
  }
  return at::cat(parts);
}

RequestPlan plan_requests(const at::Tensor& ids, int64_t processes, int64_t num_rows,
                          const std::string& table) {
  RequestPlan plan;
  plan.ids = std::get<0>(at::_unique(ids, /*sorted=*/true, /*return_inverse=*/false));
  const at::Tensor owners = owner_of(plan.ids, processes);
  plan.by_owner = at::argsort(owners, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor ends = torch::arange(1, processes + 1, owners.options());
  // Copy all that the host needs at once: where each owner's ids end, the lowest id, the highest.
  at::Tensor facts = at::searchsorted(owners.index_select(0, plan.by_owner), ends);
  if (plan.ids.numel() > 0) {
    facts = at::cat({facts, plan.ids.slice(0, 0, 1), plan.ids.slice(0, -1)});
  }
  facts = facts.cpu();
  const int64_t* fact = facts.const_data_ptr<int64_t>();
  if (plan.ids.numel() > 0) {
    const int64_t lowest = fact[processes], highest = fact[processes + 1];
    SEQFUSE_CHECK(lowest >= 0 && highest < num_rows,
                  "table {}: id {} is not in it; expected ids of at least 0 and below {}, its rows",
                  table, lowest < 0 ? lowest : highest, num_rows);
  }
  plan.counts.resize(processes);
  std::adjacent_difference(fact, fact + processes, plan.counts.begin());
  return plan;
}

}  // namespace seqfuse::embeddings
