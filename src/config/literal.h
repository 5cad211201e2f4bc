// Values of parameters as gin literals, which parse back to the same value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "config/choices.h"

namespace seqfuse::config {

std::string literal(bool value);                // True, False
std::string literal(int64_t value);             // 42
std::string literal(double value);              // 0.001, 1.0: the shortest that is exact
std::string literal(const std::string& value);  // 'it\'s'

// 'name'
template <Choice E>
std::string literal(E value) {
  return literal(std::string(name_of(value)));
}

template <class T>
inline constexpr bool kHasLiteral =
    Choice<T> || std::is_same_v<T, bool> || std::is_same_v<T, int64_t> ||
    std::is_same_v<T, double> || std::is_same_v<T, std::string>;
template <class T>
inline constexpr bool kHasLiteral<std::optional<T>> = kHasLiteral<T>;
template <class T>
inline constexpr bool kHasLiteral<std::vector<T>> = kHasLiteral<T>;
template <class T>
concept HasLiteral = kHasLiteral<T>;

// An optional choice that is open is '', as optional strings are.
template <HasLiteral T>
std::string literal(const std::optional<T>& value) {
  if (value) return literal(*value);
  return Choice<T> ? "''" : "None";
}

template <HasLiteral T>
std::string literal(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) {
    if (text.size() > 1) text += ", ";
    text += literal(value);
  }
  return text + "]";
}

}  // namespace seqfuse::config
