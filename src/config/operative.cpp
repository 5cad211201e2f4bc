#include "config/operative.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "config/literal.h"
#include "config/value.h"

namespace seqfuse::config {
namespace {

// Makes a valid scope of any text: letters, digits and underscores, not starting with a digit.
std::string scope_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    name += plain ? c : '_';
  }
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) name.insert(name.begin(), '_');
  return name;
}

class Printer {
 public:
  std::string take() { return std::move(text_); }

  // Prints the instance and, before it, the instances that its values refer to.
  template <class Args>
  void print(Args args, const std::string& scope = "") {
    Lines lines{*this, scoped_name(scope, Args::kName), scope, {}};
    args.visit(lines);
    text_ += lines.text + "\n";
  }

  // Prints a table and remembers its reference.
  template <class Args>
  void print_table(const Args& args) {
    const std::string scope = new_scope(args.table_name);
    print(args, scope);
    tables_.emplace_back(args, reference<Args>(scope));
  }

 private:
  struct Lines {
    Printer& printer;
    std::string instance, scope, text;

    template <class T>
    void operator()(const T& value, const char* name, const char* /*help*/) {
      const std::string nested = scope.empty() ? name : scope + "_" + name;
      text += fmt::format("{}.{} = {}\n", instance, name, printer.value(value, nested));
    }
    template <class T>
    void required(const T& value, const char* name, const char* help) {
      (*this)(value, name, help);
    }
  };

  template <class Args>
  static std::string reference(const std::string& scope) {
    return fmt::format("@{}()", scoped_name(scope, Args::kName));
  }

  // The literal of a value; instances are printed under a scope made from `name`.
  template <HasLiteral T>
  std::string value(const T& value, const std::string& /*name*/) {
    return literal(value);
  }
  template <class T>
    requires(!HasLiteral<T>)
  std::string value(const std::optional<T>& optional, const std::string& name) {
    return optional ? value(*optional, name) : "None";
  }
  template <class T>
    requires(!HasLiteral<T>)
  std::string value(const std::vector<T>& values, const std::string& name) {
    std::string text = "[";
    for (const T& each : values) text += fmt::format("\n    {},", value(each, name));
    return text + "\n]";
  }
  template <class T>
  std::string value(const std::map<std::string, T>& values, const std::string& name) {
    std::string text = "{";
    for (const auto& [key, each] : values) {
      text += fmt::format("\n    {}: {},", literal(key), value(each, name + "_" + scope_name(key)));
    }
    return text + (values.empty() ? "}" : "\n}");
  }
  std::string value(const TableArgs& table, const std::string& /*name*/) {
    return std::find_if(tables_.begin(), tables_.end(),
                        [&](const auto& printed) { return printed.first == table; })
        ->second;
  }
  template <class Args>
    requires requires { Args::kName; }
  std::string value(const Args& args, const std::string& name) {
    const std::string scope = new_scope(name);
    print(args, scope);
    return reference<Args>(scope);
  }

  std::string new_scope(const std::string& wanted) {
    const std::string base = scope_name(wanted);
    std::string scope = base;
    for (int i = 2; !scopes_.insert(scope).second; ++i) scope = base + "_" + std::to_string(i);
    return scope;
  }

  std::string text_;
  std::set<std::string> scopes_;
  std::vector<std::pair<TableArgs, std::string>> tables_;  // with a reference to each
};

// Prints the members of a root.
struct PrintInstances {
  Printer& printer;
  bool bound;

  template <class Args>
  void operator()(const Args& args) {
    printer.print(args);
  }
  template <class Args>
  void if_bound(const Args& args) {
    if (bound) printer.print(args);
  }
  template <class Args, class Other>
  void one_of(const Args& args, const std::optional<Other>& other) {
    if (other) {
      printer.print(*other);
    } else {
      printer.print(args);
    }
  }
  template <class Args>
  void tables(const std::vector<Args>& tables) {
    for (const Args& table : tables) printer.print_table(table);
  }
};

template <class Root>
std::string print_root(Root config, bool bound) {
  Printer printer;
  PrintInstances print{printer, bound};
  config.visit(print);
  return "# Every parameter in force.\n\n" + printer.take();
}

}  // namespace

std::string operative_config(const Config& config, bool bound) {
  return print_root(config, bound);
}

std::string operative_config(const EvaluateConfig& config, bool bound) {
  return print_root(config, bound);
}

}  // namespace seqfuse::config
