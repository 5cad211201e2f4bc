// A model's embedding tables. Their names in a model and in checkpoints begin with "tables.".
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <vector>

#include "embeddings/table.h"
#include "models/common/init.h"
#include "models/hstu/model_spec.h"
#include "models/hstu/windows.h"

namespace seqfuse::models::hstu {

using embeddings::EmbeddingTable;

class Tables : public torch::nn::Module {
 public:
  Tables(const ModelSpec& spec, Initializer& init, const embeddings::Placement& placement);

  // Fetches a batch's rows. more_items: int64 ids of items that are not in its windows.
  void fetch(const Windows& windows, const at::Tensor& more_items = {});
  // The same, with the rows of all items.
  void fetch_with_all_items(const Windows& windows);

  std::shared_ptr<EmbeddingTable> item;    // [num_items + 1, item width]
  std::shared_ptr<EmbeddingTable> action;  // [num_actions, item width]; null if not read
  std::vector<std::shared_ptr<EmbeddingTable>> context;  // per feature: [vocab_size, width]

  embeddings::Tables all() const;  // in the order of fetch

  at::Device device() const { return item->options().device(); }
  at::ScalarType dtype() const { return item->options().dtype().toScalarType(); }

 private:
  void fetch_others(const Windows& windows);
  std::shared_ptr<EmbeddingTable> add(const std::string& name, int64_t rows, int64_t width,
                                      const embeddings::DrawRows& draw,
                                      const embeddings::InitialRows& initial,
                                      const embeddings::Placement& placement);
};

// The name of a context feature's table.
std::string table_name(const data::ContextFeature& feature);

}  // namespace seqfuse::models::hstu
