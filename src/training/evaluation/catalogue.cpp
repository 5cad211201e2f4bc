#include "training/evaluation/catalogue.h"

#include <algorithm>

#include "base/error.h"
#include "training/evaluation/catalogue_scan.h"

namespace seqfuse::training {
namespace {

using at::Tensor;
using ExcludedLists = std::span<const std::vector<int64_t>>;  // ItemLists of some queries

constexpr int64_t kQueries = 512;  // that are scored at a time on the CPU

// Calls part(first query, queries) for each block of queries.
template <class Part>
void for_each_block(const Tensor& queries, const Part& part) {
  for (int64_t begin = 0; begin < queries.size(0); begin += kQueries) {
    part(begin, queries.slice(0, begin, std::min(queries.size(0), begin + kQueries)));
  }
}

}  // namespace

Catalogue::Catalogue(const Tensor& item_rows) : rows_(item_rows.detach().contiguous()) {
  SEQFUSE_CHECK(rows_.dim() == 2 && rows_.size(0) > 1,
                "a catalogue needs item rows [items + 1, D]");
  if (rows_.is_cuda()) return;  // only the CPU's scan needs it, and the host would wait here
  largest_norm_ = rows_.norm(2, 1).nan_to_num(0, 0, 0).max().item<double>();
}

Tensor Catalogue::ranks(const Tensor& queries, std::span<const int64_t> targets,
                        const ItemLists& excluded) const {
  const at::NoGradGuard no_grad;
  const Tensor dense = queries.detach().contiguous();
  if (rows_.is_cuda()) return ranks_on_device(rows_, dense, targets, excluded);
  Tensor ranks = at::empty({dense.size(0)}, at::kLong);
  for_each_block(dense, [&](int64_t begin, const Tensor& block) {
    const ExcludedLists lists = ExcludedLists(excluded).subspan(begin, block.size(0));
    ranks_on_cpu(rows_, largest_norm_, block, targets.subspan(begin, block.size(0)), lists,
                 ranks.mutable_data_ptr<int64_t>() + begin);
  });
  return ranks;
}

TopItems Catalogue::top(const Tensor& queries, int64_t k, const ItemLists& excluded,
                        std::span<const int64_t> allowed) const {
  const at::NoGradGuard no_grad;
  const Tensor dense = queries.detach().contiguous();
  const ScannedItems items(rows_, allowed);
  k = std::min(k, items.size());
  TopItems top;
  if (rows_.is_cuda()) {
    top_on_device(rows_, dense, k, excluded, items, top);
    return top;
  }
  for_each_block(dense, [&](int64_t begin, const Tensor& block) {
    const ExcludedLists lists = ExcludedLists(excluded).subspan(begin, block.size(0));
    top_on_cpu(rows_, largest_norm_, block, k, lists, items, top);
  });
  return top;
}

}  // namespace seqfuse::training
