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

// The tables that are bound or referenced, one per scope. Bindings without a scope are defaults of
// every table; they define a table themselves if no scope does, or if something references it.
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

// Builds everything except tables; instances built here may reference tables.
struct BuildInstances {
  const Bindings& bindings;
  Binder& binder;

  template <class Args>
  void operator()(Args& args) {
    args = binder.build<Args>();
  }
  template <class Args>
  void if_bound(Args& args) {
    if (bindings.binds(Args::kName)) (*this)(args);
  }
  template <class Args, class Other>
  void one_of(Args& args, std::optional<Other>& other) {
    if (bindings.binds(Other::kName)) {
      (*this)(other.emplace());
    } else {
      (*this)(args);
    }
  }
  template <class Args>
  void tables(std::vector<Args>& /*tables*/) {}
};

// Builds only the tables among a root's fields.
struct BuildTables {
  const Bindings& bindings;
  Binder& binder;
  // Whether the root has tables. They are scoped classes, so only then is an unreferenced one a
  // mistake.
  bool found = false;

  template <class Args>
  void operator()(Args& /*args*/) {}
  template <class Args>
  void if_bound(Args& /*args*/) {}
  template <class Args, class Other>
  void one_of(Args& /*args*/, std::optional<Other>& /*other*/) {}
  template <class Args>
  void tables(std::vector<Args>& tables) {
    tables = build_tables<Args>(bindings, binder);
    found = true;
  }
};

void warn_of_unused(const Bindings& bindings) {
  for (const Binding* binding : bindings.unused()) {
    if (!why_ignored(*binding).empty()) continue;
    log::warning("config", "{}: {}.{} has no effect: nothing refers to @{}()",
                 binding->parameter_location.text(),
                 scoped_name(binding->scope, binding->class_name), binding->parameter,
                 scoped_name(binding->scope, binding->class_name));
  }
}

template <class Root>
Loaded<Root> build_config(Bindings& bindings, const std::string& source,
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

  Loaded<Root> loaded;
  loaded.ranking_bound = bindings.binds(RankingArgs::kName);
  Binder binder(bindings);
  BuildInstances build_instances{bindings, binder};
  loaded.config.visit(build_instances);
  BuildTables build_all_tables{bindings, binder};
  loaded.config.visit(build_all_tables);

  SEQFUSE_CHECK_AS(UsageError, binder.missing().empty(),
                   "{}: required parameters are not bound:\n  {}", source,
                   fmt::join(binder.missing(), "\n  "));
  validate(loaded.config, loaded.ranking_bound, bindings);
  if (build_all_tables.found) warn_of_unused(bindings);
  loaded.operative = operative_config(loaded.config, loaded.ranking_bound);
  return loaded;
}

}  // namespace

template <class Root>
Loaded<Root> load_config(const std::string& file, const std::vector<std::string>& overrides) {
  Bindings bindings;
  if (!file.empty()) bindings.add_file(file);
  return build_config<Root>(bindings, file.empty() ? "--gin" : file, overrides);
}

template <class Root>
Loaded<Root> load_config_text(const std::string& source, const std::string& text,
                              const std::vector<std::string>& overrides) {
  Bindings bindings;
  bindings.add_text(source, text);
  return build_config<Root>(bindings, source, overrides);
}

template Loaded<Config> load_config(const std::string&, const std::vector<std::string>&);
template Loaded<Config> load_config_text(const std::string&, const std::string&,
                                         const std::vector<std::string>&);
template Loaded<EvaluateConfig> load_config(const std::string&, const std::vector<std::string>&);
template Loaded<EvaluateConfig> load_config_text(const std::string&, const std::string&,
                                                 const std::vector<std::string>&);

}  // namespace seqfuse::config
