// The untyped contents of a gin file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace seqfuse::config {

// A position in a file; prints as "file.gin:3:14". Columns count characters, from 1.
struct Location {
  std::shared_ptr<const std::string> source;  // path of the file, or "--gin #1"
  int line = 0, column = 0;

  std::string text() const;  // "file.gin:3:14"
};

struct Value;

struct List {  // [...] or (...)
  std::vector<Value> items;
};
struct Dict {
  std::vector<Value> keys, values;  // of equal size
};
struct MacroUse {  // %name
  std::string name;
};
struct Reference {  // @scope/Class or, called, @scope/Class()
  std::string scope, class_name;
  bool called = false;
};

struct Value {
  Location location;
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Dict, MacroUse, Reference>
      data;  // monostate: None
};

// For messages: "the integer 3", "the string 'ml-1m'", "a list of 2", "None", "@a/FeatureArgs()".
std::string describe(const Value& value);

// "scope/Class", or "Class" without a scope.
std::string scoped_name(const std::string& scope, const std::string& name);

}  // namespace seqfuse::config
