// Fills the structs of args.h from bindings. Checks types; validate.h checks ranges and
// names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/args.h"
#include "config/bindings.h"
#include "config/validate.h"
#include "config/value.h"

namespace seqfuse::config {

class Binder {
 public:
  explicit Binder(const Bindings& bindings) : bindings_(bindings) {}

  // Builds the instance @scope/Args(). Validates it if all its required parameters are bound; adds
  // the others to missing(). Throws UsageError.
  template <class Args>
  Args build(const std::string& scope = "") {
    Args args;
    const int64_t lacking = lacking_;
    Fill fill{*this, Args::kName, scope};
    args.visit(fill);
    if (lacking_ == lacking) validate(args, Instance(bindings_, Args::kName, scope));
    return args;
  }

  // "scope/Class.parameter  (what it is)" of each required parameter that is not bound.
  const std::vector<std::string>& missing() const { return missing_; }
  // Distinct scopes of the class in references that were followed, in order.
  std::vector<std::string> referenced_scopes(const std::string& class_name) const;

 private:
  struct Fill {
    Binder& binder;
    const char* class_name;
    const std::string& scope;

    template <class T>
    bool operator()(T& member, const char* name, const char* /*help*/) {
      const Binding* binding = binder.bindings_.find(class_name, scope, name);
      if (binding == nullptr) return false;
      binder.convert(binder.bindings_.resolve(binding->value), member,
                     scoped_name(scope, class_name) + "." + name);
      return true;
    }
    template <class T>
    void required(T& member, const char* name, const char* help) {
      if ((*this)(member, name, help)) return;
      binder.add_missing(scoped_name(scope, class_name), name, help);
    }
  };

  // parameter: its name in messages.
  void convert(const Value& value, bool& out, const std::string& parameter);
  void convert(const Value& value, int64_t& out, const std::string& parameter);
  void convert(const Value& value, double& out, const std::string& parameter);
  void convert(const Value& value, std::string& out, const std::string& parameter);
  void convert(const Value& value, TableArgs& out, const std::string& parameter);

  template <Choice E>
  void convert(const Value& value, E& out, const std::string& parameter) {
    std::string name;
    convert(value, name, parameter);
    const std::optional<E> found = find_choice<E>(name);
    if constexpr (requires { why_refused(E{}, name); }) {
      if (!found) refuse_with_reason(value, name, why_refused(E{}, name), parameter);
    }
    if (!found) refuse_choice(value, name, choice_names(E{}), parameter);
    out = *found;
  }
  // None or '' leaves the choice open.
  template <Choice E>
  void convert(const Value& value, std::optional<E>& out, const std::string& parameter) {
    std::string name;
    convert(value, name, parameter);
    if (name.empty()) {
      out.reset();
    } else {
      convert(value, out.emplace(), parameter);
    }
  }

  template <class T>
  void convert(const Value& value, std::optional<T>& out, const std::string& parameter) {
    if (std::holds_alternative<std::monostate>(value.data)) {
      out.reset();
    } else {
      convert(value, out.emplace(), parameter);
    }
  }
  template <class T>
  void convert(const Value& value, std::vector<T>& out, const std::string& parameter) {
    out.clear();
    for (const Value& item : list_items(value, parameter)) {
      convert(item, out.emplace_back(), parameter);
    }
  }
  template <class T>
  void convert(const Value& value, std::map<std::string, T>& out, const std::string& parameter) {
    out.clear();
    if (std::holds_alternative<std::monostate>(value.data)) return;
    const Dict& dict = dict_entries(value, parameter);
    for (size_t i = 0; i < dict.keys.size(); ++i) {
      std::string key;
      convert(dict.keys[i], key, parameter);
      convert(dict.values[i], out[key], parameter);
    }
  }
  template <class Args>
    requires requires { Args::kName; }
  void convert(const Value& value, Args& out, const std::string& parameter) {
    const Reference& reference =
        follow(value, parameter, std::string("@scope/") + Args::kName + "()", {Args::kName});
    out = build<Args>(reference.scope);
  }

  // Throws unless reason is "".
  static void refuse_with_reason(const Value& value, const std::string& given,
                                 std::string_view reason, const std::string& parameter);
  [[noreturn]] static void refuse_choice(const Value& value, const std::string& given, Names names,
                                         const std::string& parameter);
  static const std::vector<Value>& list_items(const Value& value, const std::string& parameter);
  static const Dict& dict_entries(const Value& value, const std::string& parameter);
  // The reference, checked to name an instance of one of the classes in an existing scope.
  const Reference& follow(const Value& value, const std::string& parameter,
                          const std::string& expected, std::initializer_list<std::string> classes);
  void add_missing(const std::string& instance, const char* name, const char* help);

  const Bindings& bindings_;
  std::vector<std::string> missing_;
  int64_t lacking_ = 0;  // like missing_.size(), but counts repeated builds of an instance
  std::vector<std::pair<std::string, std::string>> references_;  // class, scope
};

}  // namespace seqfuse::config
