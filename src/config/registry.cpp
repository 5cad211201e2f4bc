#include "config/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/names.h"
#include "config/args.h"
#include "config/literal.h"

namespace seqfuse::config {
namespace {

template <class T>
struct Named {};

std::string type_name(Named<bool>) {
  return "True or False";
}
std::string type_name(Named<int64_t>) {
  return "integer";
}
std::string type_name(Named<double>) {
  return "number";
}
std::string type_name(Named<std::string>) {
  return "string";
}
template <Choice E>
std::string type_name(Named<E>) {
  return "string";
}
std::string type_name(Named<TableArgs>) {
  return "@EmbeddingArgs() or @DynamicEmbeddingArgs()";
}
template <class T>
std::string type_name(Named<T>) {
  return fmt::format("@{}()", T::kName);
}
template <Choice E>
std::string type_name(Named<std::optional<E>>) {
  return "string";
}
template <class T>
std::string type_name(Named<std::optional<T>>) {
  return type_name(Named<T>{}) + " or None";
}
template <class T>
std::string type_name(Named<std::vector<T>>) {
  return "list of " + type_name(Named<T>{});
}
template <class T>
std::string type_name(Named<std::map<std::string, T>>) {
  return "dict of string: " + type_name(Named<T>{});
}

struct Collect {
  std::vector<ParameterInfo> parameters;

  template <class T>
  void required(const T&, const char* name, const char* help) {
    parameters.push_back({name, help, type_name(Named<T>{}), ""});
  }
  // Defaults of values that are instances: none, or an empty dict.
  template <class T>
  void operator()(const T& value, const char* name, const char* help) {
    std::string text;
    if constexpr (HasLiteral<T>) {
      text = literal(value);
    } else if constexpr (requires { value.has_value(); }) {
      text = "None";
    } else {
      text = "{}";
    }
    parameters.push_back({name, help, type_name(Named<T>{}), text});
  }
};

template <class Args>
ClassInfo describe_class(bool scoped) {
  Collect collect;
  Args().visit(collect);
  return {Args::kName, Args::kSummary, scoped, std::move(collect.parameters)};
}

// Names in other versions of this format, for people who bring such files.
struct FormerName {
  std::string_view class_name, parameter, advice;
};
constexpr std::array kFormerNames = {
    FormerName{"DatasetArgs", "max_sequence_length", "use max_history_seqlen"},
    FormerName{"NetworkArgs", "backbone", "see NetworkArgs.architecture"},
};
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kFormerClasses = {{
    {"DataArgs", DatasetArgs::kName},
    {"TrainingArgs", TrainerArgs::kName},
    {"ModelArgs", NetworkArgs::kName},
}};
// Parameters of other versions whose every value describes what we always do.
constexpr std::array kIgnored = {
    FormerName{"NetworkArgs", "layer_type", "all layers are fused"},
};

std::string advice(const Binding& binding, const ClassInfo& info) {
  for (const FormerName& former : kFormerNames) {
    if (former.class_name == info.name && former.parameter == binding.parameter) {
      return fmt::format(" ({})", former.advice);
    }
  }
  std::vector<std::string> names;
  for (const ParameterInfo& parameter : info.parameters) names.push_back(parameter.name);
  return did_you_mean(binding.parameter, names);
}

const ClassInfo& find_class(const std::string& class_name, const Location& location) {
  std::vector<std::string> names;
  for (const ClassInfo& info : classes()) {
    if (info.name == class_name) return info;
    names.push_back(info.name);
  }
  for (const auto& [former, name] : kFormerClasses) {
    if (former == class_name) {
      throw_error<UsageError>("{}: unknown class {} (did you mean '{}'?)", location.text(),
                              class_name, name);
    }
  }
  throw_error<UsageError>("{}: unknown class {}{}", location.text(), class_name,
                          did_you_mean(class_name, names));
}

}  // namespace

std::string why_ignored(const Binding& binding) {
  for (const FormerName& ignored : kIgnored) {
    if (ignored.class_name == binding.class_name && ignored.parameter == binding.parameter) {
      return std::string(ignored.advice);
    }
  }
  return "";
}

const std::vector<ClassInfo>& classes() {
  static const std::vector<ClassInfo> all = {
      describe_class<TrainerArgs>(false),
      describe_class<DatasetArgs>(false),
      describe_class<NetworkArgs>(false),
      describe_class<EmbeddingArgs>(true),
      describe_class<DynamicEmbeddingArgs>(true),
      describe_class<OptimizerArgs>(false),
      describe_class<TensorModelParallelArgs>(false),
      describe_class<RankingArgs>(false),
      describe_class<RetrievalArgs>(false),
      describe_class<RandomDistribution>(true),
      describe_class<FeatureArgs>(true),
      describe_class<BenchmarkDatasetArgs>(false),
  };
  return all;
}

void check_names(const Binding& binding) {
  const ClassInfo& info = find_class(binding.class_name, binding.class_location);
  const bool known = std::any_of(
      info.parameters.begin(), info.parameters.end(),
      [&](const ParameterInfo& parameter) { return parameter.name == binding.parameter; });
  SEQFUSE_CHECK_AS(UsageError, known, "{}: unknown parameter {}.{}{}",
                   binding.parameter_location.text(), info.name, binding.parameter,
                   advice(binding, info));
  SEQFUSE_CHECK_AS(UsageError, info.scoped || binding.scope.empty(),
                   "{}: {} takes no scope: write {}.{} without '{}/'",
                   binding.class_location.text(), info.name, info.name, binding.parameter,
                   binding.scope);
}

void check_class(const std::string& class_name, const Location& location) {
  find_class(class_name, location);
}

}  // namespace seqfuse::config
