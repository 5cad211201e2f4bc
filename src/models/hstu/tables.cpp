#include "models/hstu/tables.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/torch/ops.h"

namespace seqfuse::models {
namespace {

at::Tensor initial_rows(Initializer& init, int64_t rows, int64_t width) {
  return init.uniform({rows, width}, std::sqrt(1.0 / static_cast<double>(rows)));
}

}  // namespace

at::Tensor lookup(const at::Tensor& table, const at::Tensor& ids) {
  return ops::embedding_lookup(table, ids, table.size(0) >= kSparseTableRows);
}

Tables::Tables(const ModelSpec& spec, Initializer& init) {
  const config::NetworkArgs& network = spec.network;
  if (network.architecture == "hstu_research") {
    item = register_parameter(
        "item", init.truncated_normal({spec.num_items + 1, network.hidden_size}, 0.02));
    return;
  }
  const auto width_or = [&](int64_t width) { return width > 0 ? width : network.hidden_size; };
  const int64_t item_width = width_or(network.item_embedding_dim);
  item = register_parameter("item", initial_rows(init, spec.num_items + 1, item_width));
  if (spec.num_actions > 0) {
    action = register_parameter("action", initial_rows(init, spec.num_actions, item_width));
  }
  const int64_t context_width = width_or(network.contextual_embedding_dim);
  for (const data::ContextFeature& feature : spec.context) {
    std::string name = feature.name;
    std::replace(name.begin(), name.end(), '.', '_');  // a dot separates modules
    if (name == "item" || name == "action") name.insert(0, "context_");
    context.push_back(
        register_parameter(name, initial_rows(init, feature.vocab_size, context_width)));
  }
}

}  // namespace seqfuse::models
