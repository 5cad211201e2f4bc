#include "text/pattern_syntax.h"

#include <cctype>

#include "base/error.h"

namespace seqfuse::text {
namespace {

// Oniguruma's \w as members of a character class.
constexpr std::string_view kWordCharacters = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (class_depth_ > 0) {
        inside_class(c);
      } else if (c == '[') {
        open_class();
      } else if (starts_with("(?")) {
        check_options();
        copy(2);
      } else if (c == '}') {
        copy(1);
        // Oniguruma repeats the repetition; PCRE2 would make it possessive or lazy.
        if (starts_with("+") || starts_with("?")) refuse("a repetition {…} with + or ? after it");
      } else {
        copy(1);
      }
    }
    return std::move(result_);
  }

 private:
  bool starts_with(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(size_t count) {
    result_ += pattern_.substr(at_, count);
    at_ += count;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw_error<DataError>("pattern {}: {} is not supported", pattern_, what);
  }

  void escape() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (c) {
      case 'p':
      case 'P':
        property();
        return;
      case 'w':
        result_ +=
            class_depth_ > 0 ? std::string(kWordCharacters) : fmt::format("[{}]", kWordCharacters);
        at_ += 2;
        return;
      case 'W':
        if (class_depth_ > 0) refuse("\\W inside a character class");
        result_ += fmt::format("[^{}]", kWordCharacters);
        at_ += 2;
        return;
      case 'b':
      case 'B':
      case 'h':
      case 'H':
      case 'R':
      case 'X':
      case 'y':
      case 'Y':
      case 'O':
      case 'N':
      case 'K':
      case 'G':
        refuse(fmt::format("\\{}", c));
      default:
        copy(2);
    }
  }

  // Keeps \p{L}; a name that is no general category becomes a script, not a script extension.
  void property() {
    copy(2);
    if (!starts_with("{")) refuse("\\p without {…}");
    copy(1);
    if (starts_with("^")) copy(1);
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) refuse("\\p{ without }");
    const std::string_view name = pattern_.substr(at_, end - at_);
    if (name.size() > 2) result_ += "sc:";
    copy(name.size() + 1);
  }

  void check_options() const {
    for (size_t i = at_ + 2;
         i < pattern_.size() && std::isalpha(static_cast<unsigned char>(pattern_[i])); ++i) {
      if (pattern_[i] != 'i') refuse(fmt::format("the option (?{})", pattern_[i]));
    }
  }

  void open_class() {
    class_depth_ = 1;
    copy(1);
    if (starts_with("^")) copy(1);
    if (starts_with("]")) refuse("] as the first member of a character class");
  }

  // A class inside a class adds its members.
  void inside_class(char c) {
    if (c == ']') {
      if (--class_depth_ == 0) result_ += ']';
      ++at_;
    } else if (starts_with("[:") || starts_with("[^")) {
      refuse(fmt::format("{} inside a character class", pattern_.substr(at_, 2)));
    } else if (c == '[') {
      ++class_depth_;
      ++at_;
    } else if (starts_with("&&")) {
      refuse("&& inside a character class");
    } else {
      copy(1);
    }
  }

  std::string_view pattern_;
  std::string result_;
  size_t at_ = 0;
  int class_depth_ = 0;
};

}  // namespace

std::string to_pcre2_syntax(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace seqfuse::text
