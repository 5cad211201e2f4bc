// The classes of args.h as data: what checks of names, docs/config.md and help are made from.
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
  bool scoped = false;  // many instances, one a scope; else one instance, without scope
  std::vector<ParameterInfo> parameters;
};

// In the order of args.h.
const std::vector<ClassInfo>& classes();

// Throws UsageError with the nearest known name if there is no such class or parameter, or if a
// scope stands before a class that takes none.
void check_names(const Binding& binding);

// The same for the class of a reference.
void check_class(const std::string& class_name, const Location& location);

// Why a parameter of another version of this format has no effect here; "" for all others.
std::string why_ignored(const Binding& binding);

}  // namespace seqfuse::config
