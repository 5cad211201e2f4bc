// Implements table_placement() of tables.h.
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "models/hstu/tables.h"

namespace seqfuse::models::hstu {
namespace {

// The table name of each feature of the model.
std::map<std::string, std::string> tables_by_feature(const config::Config& config,
                                                     const ModelSpec& spec) {
  std::map<std::string, std::string> tables = {{"item", "item"}};
  const bool research = spec.network.architecture == config::Architecture::hstu_research;
  const bool actions = !research && spec.num_actions > 0;
  if (actions) tables["action"] = "action";
  if (!research) {
    for (const data::ContextFeature& feature : spec.context) {
      tables[feature.name] = table_name(feature);
    }
  }
  if (const auto& generated = config.benchmark_dataset) {
    tables[generated->item_feature_name] = "item";
    if (actions && generated->action_feature_name) {
      tables[*generated->action_feature_name] = "action";
    }
  }
  return tables;
}

embeddings::UpdateKind table_optimizer(const config::OptimizerArgs& args) {
  return args.embedding_optimizer_str.empty()
             ? embeddings::parse_update_kind(args.optimizer_str, "optimizer_str")
             : embeddings::parse_update_kind(args.embedding_optimizer_str,
                                             "embedding_optimizer_str");
}

// A softmax over the whole catalogue needs the rows of all items at once.
void check_catalogue(const config::DynamicEmbeddingArgs& args, const std::string& table,
                     const ModelSpec& spec) {
  if (table != "item" || spec.task != Task::retrieval ||
      spec.retrieval.negatives != config::Negatives::full) {
    return;
  }
  SEQFUSE_CHECK_AS(
      UsageError, args.item_vocab_size_or_capacity > spec.num_items,
      "RetrievalArgs.negatives = 'full' reads the rows of all {} items in every step, "
      "but DynamicEmbeddingArgs.item_vocab_size_or_capacity of table '{}' is {}: raise it "
      "to {}, or use 'in_batch' or 'uniform' negatives",
      spec.num_items, args.table_name, args.item_vocab_size_or_capacity, spec.num_items + 1);
}

}  // namespace

embeddings::Placement table_placement(const config::Config& config, const ModelSpec& spec,
                                      distributed::ProcessGroup& group, at::Device device) {
  embeddings::Placement placement{.group = &group,
                                  .sharding_types = {},
                                  .dynamic = {},
                                  .device = device,
                                  .seed = static_cast<uint64_t>(config.trainer.seed)};
  const std::map<std::string, std::string> tables = tables_by_feature(config, spec);
  // A softmax over the whole catalogue reads every row in every step.
  if (spec.task == Task::retrieval && spec.retrieval.negatives == config::Negatives::full) {
    placement.sharding_types["item"] = "data_parallel";
  }
  const auto take_over = [&](const auto& args) {
    bool found = false;
    for (const std::string& feature : args.feature_names) {
      const auto table = tables.find(feature);
      if (table == tables.end()) continue;
      found = true;
      if (args.sharding_type != "auto")
        placement.sharding_types[table->second] = args.sharding_type;
    }
    return found;
  };
  for (const config::DynamicEmbeddingArgs& args : config.dynamic_embeddings) {
    if (!take_over(args) && group.is_first()) {
      log::warning("train",
                   "DynamicEmbeddingArgs of table '{}' have no effect: the model has none of "
                   "their features ['{}']",
                   args.table_name, fmt::join(args.feature_names, "', '"));
    }
    for (const std::string& feature : args.feature_names) {
      const auto table = tables.find(feature);
      if (table == tables.end()) continue;
      placement.dynamic[table->second] = {.capacity = args.item_vocab_size_or_capacity,
                                          .evict_strategy = args.evict_strategy,
                                          .dist_type = args.dist_type,
                                          .bytes_on_gpu = args.global_hbm_for_values,
                                          .rows_on_gpu = args.item_vocab_gpu_capacity,
                                          .share_on_gpu = args.item_vocab_gpu_capacity_ratio,
                                          .caching = args.caching,
                                          .optimizer = table_optimizer(config.optimizer)};
      check_catalogue(args, table->second, spec);
    }
  }
  for (const config::EmbeddingArgs& args : config.embeddings) {
    if (take_over(args) || args.sharding_type != "model_parallel") continue;
    std::vector<std::string> known;
    for (const auto& [feature, table] : tables) known.push_back(feature);
    throw_error<UsageError>(
        "EmbeddingArgs.sharding_type of table '{}' is 'model_parallel', but the model has none of "
        "its features ['{}']{}; the features with tables are {}",
        args.table_name, fmt::join(args.feature_names, "', '"),
        did_you_mean(args.feature_names.front(), known), fmt::join(known, ", "));
  }
  return placement;
}

}  // namespace seqfuse::models::hstu
