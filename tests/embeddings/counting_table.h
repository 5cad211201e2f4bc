// A sharded table whose rows encode their ids.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "embeddings/table.h"

namespace seqfuse::embeddings {

inline constexpr int64_t kDim = 3;

// All rows; row i is i, i + 0.25, i + 0.5.
inline at::Tensor all_rows(int64_t num_rows) {
  return torch::arange(num_rows, torch::kFloat).unsqueeze(1) +
         0.25 * torch::arange(kDim, torch::kFloat);
}

inline std::shared_ptr<EmbeddingTable> table_of(int64_t num_rows, distributed::ProcessGroup& group,
                                                at::Device device = at::kCPU) {
  int64_t drawn = 0;
  const auto draw = [&](int64_t rows) {
    drawn += rows;
    return all_rows(num_rows).slice(0, drawn - rows, drawn);
  };
  auto table =
      make_table("item", num_rows, draw,
                 {.group = &group, .sharding_types = {{"item", config::Sharding::model_parallel}}});
  at::Tensor weight = table->weight();
  weight.set_data(weight.to(device));  // as a module does
  weight.set_requires_grad(true);
  return table;
}

inline at::Tensor ids_from(const std::vector<int64_t>& ids) {
  return torch::tensor(ids, torch::kLong);
}

}  // namespace seqfuse::embeddings
