#include "config/without_effect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "config/literal.h"

namespace seqfuse::config {
namespace {

constexpr std::array<WithoutEffect, 4> kParameters = {{
    {NetworkArgs::kName, "kernel_backend", ""},
    {NetworkArgs::kName, "embedding_backend", "there is only one backend"},
    {DynamicEmbeddingArgs::kName, "sharding_type", ""},
    {TensorModelParallelArgs::kName, "tensor_model_parallel_size", ""},
}};

struct Literals {
  std::map<std::string, std::string, std::less<>> values;

  template <class T>
  void operator()(const T& value, const char* name, const char* /*help*/) {
    if constexpr (HasLiteral<T>) values[name] = literal(value);
  }
  template <class T>
  void required(const T& value, const char* name, const char* help) {
    (*this)(value, name, help);
  }
};

template <class Args>
Literals literals_of(Args args) {
  Literals literals;
  args.visit(literals);
  return literals;
}

// The set parameters of args, grouped by reason.
template <class Args>
void collect(const Args& args, std::map<std::string_view, std::set<std::string>>& found) {
  const Literals set = literals_of(args), defaults = literals_of(Args());
  for (const WithoutEffect& parameter : kParameters) {
    if (parameter.class_name != Args::kName || parameter.reason.empty()) continue;
    if (set.values.at(std::string(parameter.parameter)) !=
        defaults.values.at(std::string(parameter.parameter))) {
      found[parameter.reason].insert(
          fmt::format("{}.{}", parameter.class_name, parameter.parameter));
    }
  }
}

}  // namespace

std::span<const WithoutEffect> parameters_without_effect() {
  return kParameters;
}

std::string warn_without_effect(const Config& config) {
  std::map<std::string_view, std::set<std::string>> found;
  collect(config.network, found);
  std::string text;
  for (const auto& [reason, names] : found) {
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    text += fmt::format("{}{} ({})", text.empty() ? "no effect: " : "; ", list, reason);
  }
  return text;
}

std::vector<std::string> notes_of_no_effect(const Config& config, const RunKind& run) {
  std::vector<std::string> notes;
  if (!config.benchmark_dataset && !config.embeddings.empty()) {
    notes.emplace_back("sizes of embedding tables come from the dataset, not from EmbeddingArgs");
  }
  for (const DynamicEmbeddingArgs& table : config.dynamic_embeddings) {
    const bool places_rows = table.caching || table.global_hbm_for_values.has_value() ||
                             table.item_vocab_gpu_capacity.has_value() ||
                             table.item_vocab_gpu_capacity_ratio.has_value();
    if (run.is_on_gpu || !places_rows) continue;
    notes.push_back(
        fmt::format("DynamicEmbeddingArgs of table '{}': caching and what is in GPU memory only "
                    "have an effect on a GPU",
                    table.table_name));
  }
  const NetworkArgs& network = config.network;
  if ((network.recompute_input_layernorm || network.recompute_input_silu) &&
      (!run.is_on_gpu || network.dtype_str == ComputeType::float32)) {
    notes.emplace_back("NetworkArgs.recompute_* only have an effect in 16 bits on a GPU");
  }
  if (run.task == Task::retrieval && network.architecture == Architecture::hstu &&
      !network.disable_contextual_mask) {
    notes.emplace_back("context is causal: every next item is predicted, and none may be seen");
  }
  return notes;
}

}  // namespace seqfuse::config
