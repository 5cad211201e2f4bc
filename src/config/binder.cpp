#include "config/binder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <variant>

#include "base/error.h"
#include "base/names.h"
#include "config/literal.h"
#include "config/registry.h"

namespace seqfuse::config {
namespace {

[[noreturn]] void mismatch(const Value& value, const std::string& parameter,
                           std::string_view expected, std::string_view hint = "") {
  throw_error<UsageError>("{}: {}: expected {}, got {}{}", value.location.text(), parameter,
                          expected, describe(value), hint);
}

}  // namespace

void Binder::convert(const Value& value, bool& out, const std::string& parameter) {
  const bool* flag = std::get_if<bool>(&value.data);
  if (flag == nullptr) mismatch(value, parameter, "True or False");
  out = *flag;
}

void Binder::convert(const Value& value, int64_t& out, const std::string& parameter) {
  if (const auto* integer = std::get_if<int64_t>(&value.data)) {
    out = *integer;
    return;
  }
  const auto* real = std::get_if<double>(&value.data);
  const bool whole = real != nullptr && std::nearbyint(*real) == *real && std::abs(*real) < 1e15;
  mismatch(value, parameter, "an integer",
           whole ? fmt::format("; write {}", static_cast<int64_t>(*real)) : "");
}

void Binder::convert(const Value& value, double& out, const std::string& parameter) {
  if (const auto* real = std::get_if<double>(&value.data)) {
    out = *real;
  } else if (const auto* integer = std::get_if<int64_t>(&value.data)) {
    out = static_cast<double>(*integer);
  } else {
    mismatch(value, parameter, "a number");
  }
}

// Other trainers default optional strings to None; ours are empty.
void Binder::convert(const Value& value, std::string& out, const std::string& parameter) {
  if (std::holds_alternative<std::monostate>(value.data)) {
    out.clear();
    return;
  }
  const auto* text = std::get_if<std::string>(&value.data);
  if (text == nullptr) mismatch(value, parameter, "a string");
  out = *text;
}

void Binder::convert(const Value& value, TableArgs& out, const std::string& parameter) {
  const Reference& reference =
      follow(value, parameter, "@scope/EmbeddingArgs() or @scope/DynamicEmbeddingArgs()",
             {EmbeddingArgs::kName, DynamicEmbeddingArgs::kName});
  if (reference.class_name == EmbeddingArgs::kName) {
    out = build<EmbeddingArgs>(reference.scope);
  } else {
    out = build<DynamicEmbeddingArgs>(reference.scope);
  }
}

void Binder::refuse_with_reason(const Value& value, const std::string& given,
                                std::string_view reason, const std::string& parameter) {
  SEQFUSE_CHECK_AS(UsageError, reason.empty(), "{}: {} is {}: {}", value.location.text(), parameter,
                   literal(given), reason);
}

void Binder::refuse_choice(const Value& value, const std::string& given, Names names,
                           const std::string& parameter) {
  const std::vector<std::string> known(names.begin(), names.end());
  throw_error<UsageError>("{}: {} is {}{}; expected one of {}", value.location.text(), parameter,
                          literal(given), did_you_mean(given, known), fmt::join(known, ", "));
}

const std::vector<Value>& Binder::list_items(const Value& value, const std::string& parameter) {
  const auto* list = std::get_if<List>(&value.data);
  if (list == nullptr) {
    const auto* text = std::get_if<std::string>(&value.data);
    mismatch(value, parameter, "a list",
             text != nullptr ? fmt::format("; write [{}]", literal(*text)) : "");
  }
  return list->items;
}

const Dict& Binder::dict_entries(const Value& value, const std::string& parameter) {
  const Dict* dict = std::get_if<Dict>(&value.data);
  if (dict == nullptr) mismatch(value, parameter, "a dict");
  return *dict;
}

const Reference& Binder::follow(const Value& value, const std::string& parameter,
                                const std::string& expected,
                                std::initializer_list<std::string> classes) {
  const auto* reference = std::get_if<Reference>(&value.data);
  if (reference == nullptr) mismatch(value, parameter, expected);
  const std::string& class_name = reference->class_name;
  check_class(class_name, value.location);
  if (std::find(classes.begin(), classes.end(), class_name) == classes.end()) {
    mismatch(value, parameter, expected);
  }
  if (!reference->called) mismatch(value, parameter, expected, "; add () to make an instance");

  const std::vector<std::string> scopes = bindings_.scopes(class_name);
  const auto inside = [&](const std::string& scope) {
    return scope.empty() || reference->scope == scope || reference->scope.starts_with(scope + "/");
  };
  SEQFUSE_CHECK_AS(UsageError, std::any_of(scopes.begin(), scopes.end(), inside),
                   "{}: {}: no parameter of {} is bound{}", value.location.text(), parameter,
                   scoped_name(reference->scope, class_name),
                   did_you_mean(reference->scope, scopes));
  references_.emplace_back(class_name, reference->scope);
  return *reference;
}

std::vector<std::string> Binder::referenced_scopes(const std::string& class_name) const {
  std::vector<std::string> scopes;
  for (const auto& [referenced, scope] : references_) {
    if (referenced == class_name &&
        std::find(scopes.begin(), scopes.end(), scope) == scopes.end()) {
      scopes.push_back(scope);
    }
  }
  return scopes;
}

void Binder::add_missing(const std::string& instance, const char* name, const char* help) {
  ++lacking_;
  std::string line = fmt::format("{}.{}  ({})", instance, name, help);
  if (std::find(missing_.begin(), missing_.end(), line) == missing_.end()) {
    missing_.push_back(std::move(line));
  }
}

}  // namespace seqfuse::config
