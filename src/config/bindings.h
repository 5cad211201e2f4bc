// All statements of a configuration: files, their includes, overrides. The last binding of a
// parameter wins. Macros are looked up when a parameter is read, so their order does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "config/parser.h"
#include "config/value.h"

namespace seqfuse::config {

class Bindings {
 public:
  // Reads a file and its includes, which are searched next to the including file, then in the
  // working directory. Throws IoError (first file) and UsageError.
  void add_file(const std::filesystem::path& file);
  // source: name of the text in messages. Includes are relative to the working directory.
  void add_text(const std::string& source, std::string_view text);

  // The binding of a parameter for @scope/Class(), from the longest matching prefix of the scope
  // ("a/b", "a", ""), or null. Marks the binding as used.
  const Binding* find(const std::string& class_name, const std::string& scope,
                      const std::string& parameter) const;

  // The value with its macros expanded. Throws UsageError for an unknown macro, a macro cycle, or
  // an excessive expansion.
  Value resolve(const Value& value) const;

  // Every binding in order, including overridden ones.
  const std::vector<Binding>& all() const { return bindings_; }
  bool binds(const std::string& class_name) const;
  // Scopes in which parameters of the class are bound, in order of appearance.
  std::vector<std::string> scopes(const std::string& class_name) const;
  // Bindings that no find() has returned and no later binding overrides.
  std::vector<const Binding*> unused() const;

 private:
  void add_statements(const std::string& source, std::string_view text,
                      const std::filesystem::path& directory);
  void include(const Include& include, const std::filesystem::path& directory);
  Value expand(const Value& value, std::vector<std::string>& chain) const;
  const Value& macro(const MacroUse& use, const Location& location) const;

  using Key = std::tuple<std::string, std::string, std::string>;  // class, scope, parameter
  std::vector<Binding> bindings_;
  std::map<Key, size_t> last_;  // index in bindings_
  std::map<std::string, Value> macros_;
  std::vector<std::filesystem::path> open_files_;  // chain of includes, canonical
  int64_t files_ = 0;
  mutable std::set<size_t> used_;
  mutable int64_t expanded_ = 0;  // work spent in resolve()
};

}  // namespace seqfuse::config
