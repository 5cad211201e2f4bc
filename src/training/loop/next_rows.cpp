#include "training/loop/next_rows.h"

#include <cstddef>

#include "embeddings/dynamic_table.h"

namespace seqfuse::training {
namespace {

// The ids that a batch reads of each table, in the order of the tables (models/hstu/tables.h).
at::Tensor ids_of(const embeddings::EmbeddingTable& table, const models::hstu::Windows& next,
                  size_t& feature) {
  if (table.name() == "action") return next.actions;
  if (table.name() != "item") return next.context.at(feature++);
  return next.predicted_items.defined() ? at::cat({next.items, next.predicted_items}) : next.items;
}

}  // namespace

void prefetch_rows(const embeddings::Tables& tables, const models::hstu::Windows* next) {
  size_t feature = 0;
  for (embeddings::EmbeddingTable* table : tables) {
    at::Tensor ids;
    if (next != nullptr) ids = ids_of(*table, *next, feature);
    auto* dynamic = dynamic_cast<embeddings::DynamicTable*>(table);
    if (dynamic == nullptr || !dynamic->is_cached()) continue;
    if (!ids.defined()) ids = at::empty({0}, table->options().dtype(at::kLong));
    dynamic->prefetch(ids);
  }
}

}  // namespace seqfuse::training
