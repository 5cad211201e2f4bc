#include "embeddings/fetched_rows.h"

#include "base/error.h"
#include "ops/torch/ops.h"

namespace seqfuse::embeddings {

at::Tensor lookup_fetched(const std::string& table, const at::Tensor& rows, const at::Tensor& known,
                          const at::Tensor& ids) {
  SEQFUSE_CHECK(rows.defined(), "table {}: lookup without fetch", table);
  const at::Tensor places = at::searchsorted(known, ids);
  if (ids.is_cpu() && ids.numel() > 0) {
    SEQFUSE_CHECK(
        known.numel() > 0 && known.index_select(0, places.clamp_max(known.numel() - 1)).equal(ids),
        "table {}: lookup of an id that was not fetched", table);
  }
  return ops::embedding_lookup(rows, places, /*sparse=*/false);
}

}  // namespace seqfuse::embeddings
