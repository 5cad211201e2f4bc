#include "config/value.h"

#include <fmt/format.h>

#include "config/literal.h"

namespace seqfuse::config {
namespace {

struct Describe {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool value) const { return literal(value); }
  std::string operator()(int64_t value) const { return "the integer " + literal(value); }
  std::string operator()(double value) const { return "the number " + literal(value); }
  std::string operator()(const std::string& value) const { return "the string " + literal(value); }
  std::string operator()(const List& list) const {
    return fmt::format("a list of {}", list.items.size());
  }
  std::string operator()(const Dict& dict) const {
    return fmt::format("a dict of {}", dict.keys.size());
  }
  std::string operator()(const MacroUse& macro) const { return "%" + macro.name; }
  std::string operator()(const Reference& reference) const {
    return fmt::format("@{}{}", scoped_name(reference.scope, reference.class_name),
                       reference.called ? "()" : "");
  }
};

}  // namespace

std::string Location::text() const {
  return fmt::format("{}:{}:{}", *source, line, column);
}

std::string describe(const Value& value) {
  return std::visit(Describe{}, value.data);
}

std::string scoped_name(const std::string& scope, const std::string& name) {
  return scope.empty() ? name : scope + "/" + name;
}

}  // namespace seqfuse::config
