// Implements table_placement() of tables.h.
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
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

}  // namespace

embeddings::Placement table_placement(const config::Config& config, const ModelSpec& spec,
                                      distributed::ProcessGroup& group) {
  embeddings::Placement placement{.group = &group, .sharding_types = {}};
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
  for (const config::DynamicEmbeddingArgs& args : config.dynamic_embeddings) take_over(args);
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
