#include "models/hstu/table_placement.h"

#include <fmt/ranges.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "embeddings/update/update_step.h"
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
    placement.sharding_types["item"] = config::Sharding::data_parallel;
  }
  // The model's tables of these features.
  const auto tables_of = [&](const std::vector<std::string>& features) {
    std::vector<std::string> found;
    for (const std::string& feature : features) {
      if (const auto table = tables.find(feature); table != tables.end()) {
        found.push_back(table->second);
      }
    }
    return found;
  };
  for (const config::DynamicEmbeddingArgs& args : config.dynamic_embeddings) {
    const std::vector<std::string> of_args = tables_of(args.feature_names);
    if (of_args.empty() && group.is_first()) {
      log::warning("train",
                   "DynamicEmbeddingArgs of table '{}' have no effect: the model has none of "
                   "their features ['{}']",
                   args.table_name, fmt::join(args.feature_names, "', '"));
    }
    for (const std::string& table : of_args) {
      placement.dynamic[table] = {.capacity = args.item_vocab_size_or_capacity,
                                  .evict_strategy = args.evict_strategy,
                                  .dist_type = args.dist_type,
                                  .bytes_on_gpu = args.global_hbm_for_values,
                                  .rows_on_gpu = args.item_vocab_gpu_capacity,
                                  .share_on_gpu = args.item_vocab_gpu_capacity_ratio,
                                  .caching = args.caching,
                                  .optimizer = embeddings::optimizer_of_tables(config.optimizer)};
      check_catalogue(args, table, spec);
    }
  }
  for (const config::EmbeddingArgs& args : config.embeddings) {
    const std::vector<std::string> of_args = tables_of(args.feature_names);
    if (args.sharding_type != config::Sharding::by_size) {
      for (const std::string& table : of_args) placement.sharding_types[table] = args.sharding_type;
    }
    if (!of_args.empty() || args.sharding_type != config::Sharding::model_parallel) continue;
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
