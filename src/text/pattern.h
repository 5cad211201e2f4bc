// Patterns that split text.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "text/json_fields.h"

struct pcre2_real_code_8;

namespace seqfuse::text {

class Pattern {
 public:
  // Syntax and meaning of Oniguruma, with Unicode character classes. Throws DataError that names an
  // unsupported construct or the position of a syntax error.
  static Pattern regex(std::string_view pattern);
  static Pattern literal(std::string_view text);
  // {"String": "…"} or {"Regex": "…"}.
  static Pattern parse(const JsonField& pattern);

  // Calls visit(segment, is_match) for matches and the text between them, in order; together they
  // are the whole text. Matches may be empty, text between them is not. An empty text is one
  // segment. The text must be valid UTF-8; threads may share a pattern. Throws Error if matching
  // takes too many steps.
  using Visit = std::function<void(std::string_view segment, bool is_match)>;
  void split(std::string_view text, const Visit& visit) const;

 private:
  Pattern(std::string_view pattern, uint32_t options);

  std::shared_ptr<const pcre2_real_code_8> code_;
};

}  // namespace seqfuse::text
