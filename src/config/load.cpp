#include "config/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "config/binder.h"
#include "config/bindings.h"
#include "config/operative.h"
#include "config/registry.h"
#include "config/validate.h"

namespace seqfuse::config {
namespace {

// The tables that are bound or referred to, one per scope. Bindings without a scope are defaults of
// every table; they define a table themselves if no scope does, or if something refers to it.
template <class Args>
std::vector<Args> build_tables(const Bindings& bindings, Binder& binder) {
  std::vector<std::string> scopes = bindings.scopes(Args::kName);
  if (scopes.size() > 1) std::erase(scopes, "");
  for (const std::string& scope : binder.referenced_scopes(Args::kName)) {
    if (std::find(scopes.begin(), scopes.end(), scope) == scopes.end()) scopes.push_back(scope);
  }
  std::vector<Args> tables;
  for (const std::string& scope : scopes) tables.push_back(binder.build<Args>(scope));
  return tables;
}

LoadedConfig build_config(Bindings& bindings, const std::string& source,
                          const std::vector<std::string>& overrides) {
  for (size_t i = 0; i < overrides.size(); ++i) {
    bindings.add_text(fmt::format("--gin #{}", i + 1), overrides[i]);
  }
  for (const Binding& binding : bindings.all()) {
    if (const std::string reason = why_ignored(binding); !reason.empty()) {
      log::info("config", "{}: {}.{} has no effect: {}", binding.parameter_location.text(),
                binding.class_name, binding.parameter, reason);
    } else {
      check_names(binding);
    }
  }

  LoadedConfig loaded;
  loaded.ranking_bound = bindings.binds(RankingArgs::kName);
  Config& config = loaded.config;
  Binder binder(bindings);
  config.trainer = binder.build<TrainerArgs>();
  if (bindings.binds(BenchmarkDatasetArgs::kName)) {
    config.benchmark_dataset = binder.build<BenchmarkDatasetArgs>();
  } else {
    config.dataset = binder.build<DatasetArgs>();
  }
  config.network = binder.build<NetworkArgs>();
  config.optimizer = binder.build<OptimizerArgs>();
  config.tensor_model_parallel = binder.build<TensorModelParallelArgs>();
  if (loaded.ranking_bound) config.ranking = binder.build<RankingArgs>();
  config.retrieval = binder.build<RetrievalArgs>();
  config.embeddings = build_tables<EmbeddingArgs>(bindings, binder);
  config.dynamic_embeddings = build_tables<DynamicEmbeddingArgs>(bindings, binder);

  SEQFUSE_CHECK_AS(UsageError, binder.missing().empty(),
                   "{}: required parameters are not bound:\n  {}", source,
                   fmt::join(binder.missing(), "\n  "));
  validate(config, loaded.ranking_bound, bindings);
  for (const Binding* binding : bindings.unused()) {
    if (!why_ignored(*binding).empty()) continue;
    log::warning("config", "{}: {}.{} has no effect: nothing refers to @{}()",
                 binding->parameter_location.text(),
                 scoped_name(binding->scope, binding->class_name), binding->parameter,
                 scoped_name(binding->scope, binding->class_name));
  }
  loaded.operative = operative_config(config, loaded.ranking_bound);
  return loaded;
}

}  // namespace

LoadedConfig load_config(const std::string& file, const std::vector<std::string>& overrides) {
  Bindings bindings;
  if (!file.empty()) bindings.add_file(file);
  return build_config(bindings, file.empty() ? "--gin" : file, overrides);
}

LoadedConfig load_config_text(const std::string& source, const std::string& text,
                              const std::vector<std::string>& overrides) {
  Bindings bindings;
  bindings.add_text(source, text);
  return build_config(bindings, source, overrides);
}

}  // namespace seqfuse::config
