#include "config/literal.h"

#include <fmt/format.h>

namespace seqfuse::config {

std::string literal(bool value) {
  return value ? "True" : "False";
}

std::string literal(int64_t value) {
  return fmt::format("{}", value);
}

std::string literal(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string literal(const std::string& value) {
  std::string text = "'";
  for (const char c : value) {
    switch (c) {
      case '\\':
        text += "\\\\";
        break;
      case '\'':
        text += "\\'";
        break;
      case '\n':
        text += "\\n";
        break;
      case '\r':
        text += "\\r";
        break;
      case '\t':
        text += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          text += fmt::format("\\x{:02x}", c);
        } else {
          text += c;
        }
    }
  }
  return text + "'";
}

}  // namespace seqfuse::config
