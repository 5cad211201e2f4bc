#include "config/bindings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/names.h"

namespace seqfuse::config {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxFiles = 1000;
// Limit on expanded values; otherwise a dozen lines of nested macros could exhaust memory.
constexpr int64_t kMaxExpanded = 1 << 20;

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

std::string parent_scope(const std::string& scope) {
  const size_t slash = scope.rfind('/');
  return slash == std::string::npos ? "" : scope.substr(0, slash);
}

}  // namespace

void Bindings::add_file(const fs::path& file) {
  const std::string text = read_file(file);
  open_files_.push_back(fs::weakly_canonical(file));
  add_statements(file.string(), text, file.parent_path());
  open_files_.pop_back();
}

void Bindings::add_text(const std::string& source, std::string_view text) {
  add_statements(source, text, {});
}

void Bindings::add_statements(const std::string& source, std::string_view text,
                              const fs::path& directory) {
  for (Statement& statement : parse_gin(source, text)) {
    std::visit(Overloaded{
                   [&](Binding& binding) {
                     if (binding.class_name == "macro" && binding.parameter == "value") {
                       macros_.insert_or_assign(std::move(binding.scope), std::move(binding.value));
                       return;  // NAME/macro.value = v is NAME = v
                     }
                     last_[{binding.class_name, binding.scope, binding.parameter}] =
                         bindings_.size();
                     bindings_.push_back(std::move(binding));
                   },
                   [&](Macro& macro) {
                     macros_.insert_or_assign(std::move(macro.name), std::move(macro.value));
                   },
                   [&](Include& file) { include(file, directory); },
                   [](Import& import) {
                     log::info("config", "{}: import {} has no effect: every class is built in",
                               import.location.text(), import.module);
                   },
               },
               statement);
  }
}

void Bindings::include(const Include& include, const fs::path& directory) {
  std::error_code error;
  fs::path file = directory / include.file;
  if (!fs::exists(file, error) && fs::exists(include.file, error)) file = include.file;
  const fs::path canonical = fs::weakly_canonical(file, error);
  if (std::find(open_files_.begin(), open_files_.end(), canonical) != open_files_.end()) {
    std::string chain;
    for (const fs::path& open : open_files_) chain += open.filename().string() + " -> ";
    throw_error<UsageError>("{}: include cycle: {}{}", include.location.text(), chain,
                            canonical.filename().string());
  }
  SEQFUSE_CHECK_AS(UsageError, ++files_ <= kMaxFiles, "{}: more than {} files are included",
                   include.location.text(), kMaxFiles);
  std::string text;
  try {
    text = read_file(file);
  } catch (const IoError& io_error) {
    throw_error<UsageError>(
        "{}: include '{}': {}; relative paths are searched next to the including file, then in "
        "the working directory",
        include.location.text(), include.file, io_error.what());
  }
  open_files_.push_back(canonical);
  add_statements(file.string(), text, file.parent_path());
  open_files_.pop_back();
}

const Binding* Bindings::find(const std::string& class_name, const std::string& scope,
                              const std::string& parameter) const {
  for (std::string prefix = scope;; prefix = parent_scope(prefix)) {
    if (const auto found = last_.find({class_name, prefix, parameter}); found != last_.end()) {
      used_.insert(found->second);
      return &bindings_[found->second];
    }
    if (prefix.empty()) return nullptr;
  }
}

const Value& Bindings::macro(const MacroUse& use, const Location& location) const {
  auto found = macros_.find(use.name);
  if (found == macros_.end()) {  // %module.NAME
    found = macros_.find(use.name.substr(use.name.rfind('.') + 1));
  }
  if (found == macros_.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : macros_) names.push_back(name);
    throw_error<UsageError>("{}: unknown macro %{}{}", location.text(), use.name,
                            did_you_mean(use.name, names));
  }
  return found->second;
}

Value Bindings::resolve(const Value& value) const {
  std::vector<std::string> chain;
  return expand(value, chain);
}

Value Bindings::expand(const Value& value, std::vector<std::string>& chain) const {
  const auto* text = std::get_if<std::string>(&value.data);
  expanded_ += 1 + (text != nullptr ? static_cast<int64_t>(text->size() / 16) : 0);
  SEQFUSE_CHECK_AS(UsageError, expanded_ <= kMaxExpanded,
                   "{}: macros expand to more than {} values", value.location.text(), kMaxExpanded);
  const auto expand_all = [&](const std::vector<Value>& values) {
    std::vector<Value> expanded;
    expanded.reserve(values.size());
    for (const Value& each : values) expanded.push_back(expand(each, chain));
    return expanded;
  };
  if (const auto* list = std::get_if<List>(&value.data)) {
    return {value.location, List{expand_all(list->items)}};
  }
  if (const auto* dict = std::get_if<Dict>(&value.data)) {
    return {value.location, Dict{expand_all(dict->keys), expand_all(dict->values)}};
  }
  const auto* use = std::get_if<MacroUse>(&value.data);
  if (use == nullptr) return value;

  const bool cycle = std::find(chain.begin(), chain.end(), use->name) != chain.end();
  chain.push_back(use->name);
  SEQFUSE_CHECK_AS(UsageError, !cycle, "{}: macro cycle: %{}", value.location.text(),
                   fmt::join(chain, " -> %"));
  SEQFUSE_CHECK_AS(UsageError, chain.size() <= kMaxNesting, "{}: macros are nested deeper than {}",
                   value.location.text(), kMaxNesting);
  Value expanded = expand(macro(*use, value.location), chain);
  chain.pop_back();
  return expanded;
}

bool Bindings::binds(const std::string& class_name) const {
  return std::any_of(bindings_.begin(), bindings_.end(),
                     [&](const Binding& binding) { return binding.class_name == class_name; });
}

std::vector<std::string> Bindings::scopes(const std::string& class_name) const {
  std::vector<std::string> scopes;
  for (const Binding& binding : bindings_) {
    if (binding.class_name == class_name &&
        std::find(scopes.begin(), scopes.end(), binding.scope) == scopes.end()) {
      scopes.push_back(binding.scope);
    }
  }
  return scopes;
}

std::vector<const Binding*> Bindings::unused() const {
  std::vector<const Binding*> unused;
  for (const auto& [key, index] : last_) {
    if (!used_.contains(index)) unused.push_back(&bindings_[index]);
  }
  return unused;
}

}  // namespace seqfuse::config
