// The grammar of gin files:
//   statement  = [scope/][module.]Class.parameter = value      binding
//              | [scope/][module.]Class:                       block of bindings: lines that are
//                    parameter = value                         indented alike, one or more
//              | [scope/]NAME = value                          macro
//              | include 'file'...  |  import module  |  from module import name
//   value      = None | True | False | number | text... | [v, ...] | (v, ...) | {v: v, ...}
//              | %[scope/]NAME | @[scope/]Class | @[scope/]Class()
// Adjacent texts are concatenated.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/value.h"

namespace seqfuse::config {

struct Binding {
  std::string scope, class_name, parameter;  // module prefixes are dropped
  Location class_location, parameter_location;
  Value value;
};
struct Macro {
  std::string name;  // with its scope, "scope/NAME"
  Value value;
};
struct Include {
  std::string file;
  Location location;
};
struct Import {
  std::string module;
  Location location;
};
using Statement = std::variant<Binding, Macro, Include, Import>;

// Nesting limit of brackets; deeper files are refused.
inline constexpr int kMaxNesting = 64;

// Throws UsageError starting with "source:line:column:".
std::vector<Statement> parse_gin(const std::string& source, std::string_view text);

}  // namespace seqfuse::config
