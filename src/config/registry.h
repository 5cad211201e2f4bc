// The classes of args.h as data, for name checks, docs/config.md and help.
#pragma once

#include <string>
#include <vector>

#include "config/parser.h"

namespace seqfuse::config {

struct ParameterInfo {
  std::string name, help;
  std::string type;           // "integer", "list of string", "number or None", ...
  std::string default_value;  // as a gin literal; empty: required
};

struct ClassInfo {
  std::string name, summary;
  bool scoped = false;  // one instance per scope; otherwise one instance, without scope
  std::vector<ParameterInfo> parameters;
};

// In the order of args.h.
const std::vector<ClassInfo>& classes();

// Throws UsageError with the nearest known name if there is no such class or parameter, or if a
// class without scopes is given one.
void check_names(const Binding& binding);

// The same for the class of a reference.
void check_class(const std::string& class_name, const Location& location);

// Why a parameter of another version of this format has no effect here; "" for other parameters.
std::string why_ignored(const Binding& binding);

}  // namespace seqfuse::config
