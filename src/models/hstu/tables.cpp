#include "models/hstu/tables.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace seqfuse::models::hstu {

std::string table_name(const data::ContextFeature& feature) {
  std::string name = feature.name;
  std::replace(name.begin(), name.end(), '.', '_');  // torch separates modules by dots
  if (name == "item" || name == "action") name.insert(0, "context_");
  return name;
}

std::shared_ptr<EmbeddingTable> Tables::add(const std::string& name, int64_t rows, int64_t width,
                                            const embeddings::DrawRows& draw,
                                            const embeddings::InitialRows& initial,
                                            const embeddings::Placement& placement) {
  auto table = embeddings::make_table(name, rows, draw, placement, width, initial);
  if (table->weight().defined()) register_parameter(name, table->weight());
  return table;
}

Tables::Tables(const ModelSpec& spec, Initializer& init, const embeddings::Placement& placement) {
  const config::NetworkArgs& network = spec.network;
  if (network.architecture == config::Architecture::hstu_research) {
    constexpr double kStd = 0.02;
    const auto draw = [&](int64_t rows) {
      return init.truncated_normal({rows, network.hidden_size}, kStd);
    };
    item = add("item", spec.num_items + 1, network.hidden_size, draw,
               {.normal = true, .spread = kStd}, placement);
    return;
  }
  const auto width_or = [&](int64_t width) { return width > 0 ? width : network.hidden_size; };
  const auto add_uniform = [&](const std::string& name, int64_t rows, int64_t width) {
    const double bound = std::sqrt(1.0 / static_cast<double>(rows));
    const auto draw = [&](int64_t count) { return init.uniform({count, width}, bound); };
    return add(name, rows, width, draw, {.spread = bound}, placement);
  };
  const int64_t item_width = width_or(network.item_embedding_dim);
  item = add_uniform("item", spec.num_items + 1, item_width);
  if (spec.num_actions > 0) action = add_uniform("action", spec.num_actions, item_width);
  for (const data::ContextFeature& feature : spec.context) {
    context.push_back(add_uniform(table_name(feature), feature.vocab_size,
                                  width_or(network.contextual_embedding_dim)));
  }
}

embeddings::Tables Tables::all() const {
  embeddings::Tables tables = {item.get()};
  if (action) tables.push_back(action.get());
  for (const auto& table : context) tables.push_back(table.get());
  return tables;
}

void Tables::fetch(const Windows& windows, const at::Tensor& more_items) {
  item->fetch(more_items.defined() ? at::cat({windows.items, more_items}) : windows.items);
  fetch_others(windows);
}

void Tables::fetch_with_all_items(const Windows& windows) {
  item->fetch_all();
  fetch_others(windows);
}

void Tables::fetch_others(const Windows& windows) {
  if (action) action->fetch(windows.actions);
  for (size_t feature = 0; feature < context.size(); ++feature) {
    context[feature]->fetch(windows.context[feature]);
  }
}

}  // namespace seqfuse::models::hstu
