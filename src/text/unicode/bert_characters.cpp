#include "text/unicode/bert_characters.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/utf8.h"
#include "text/unicode/bert_characters_tables.h"

namespace seqfuse::text {
namespace {

constexpr char32_t kCapitalIWithDot = 0x130;  // the only one whose lowercase is two characters

// The range that contains a character, or null.
template <class Range>
const Range* range_of(std::span<const Range> ranges, char32_t code) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code,
                       [](char32_t c, const Range& range) { return c < range.first; });
  if (after == ranges.begin() || code > std::prev(after)->last) return nullptr;
  return &*std::prev(after);
}

// A set of characters; ASCII, the most common, by a table.
class CharacterSet {
 public:
  explicit CharacterSet(std::span<const CharacterRange> ranges) : ranges_(ranges) {
    for (char32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = range_of(ranges_, c) != nullptr;
  }
  bool has(char32_t code) const {
    return code < ascii_.size() ? ascii_[code] : range_of(ranges_, code) != nullptr;
  }

 private:
  std::span<const CharacterRange> ranges_;
  std::array<bool, 128> ascii_{};
};

// visit(code, bytes) for each character.
template <class Visit>
void for_each_character(std::string_view text, Visit&& visit) {
  for (size_t i = 0; i < text.size();) {
    const auto [code, length] = character_at(text, i);
    visit(code, text.substr(i, length));
    i += length;
  }
}

char32_t lowercase_of(char32_t code) {
  const LowercaseRange* range = range_of(bert_tables().lowercase, code);
  if (range == nullptr || (code - range->first) % range->step != 0) return code;
  return static_cast<char32_t>(static_cast<int32_t>(code) + range->difference);
}

}  // namespace

std::string clean_bert_text(std::string_view text) {
  static const CharacterSet removed(bert_tables().removed), spaces(bert_tables().spaces);
  std::string result;
  result.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    if (removed.has(code)) return;
    result += spaces.has(code) ? std::string_view(" ") : bytes;
  });
  return result;
}

std::string with_spaced_ideographs(std::string_view text) {
  static const CharacterSet ideographs(bert_tables().ideographs);
  std::string result;
  result.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    const bool spaced = ideographs.has(code);
    if (spaced) result += ' ';
    result += bytes;
    if (spaced) result += ' ';
  });
  return result;
}

std::string without_marks(std::string_view text) {
  static const CharacterSet marks(bert_tables().marks);
  std::string result;
  result.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    if (!marks.has(code)) result += bytes;
  });
  return result;
}

std::string lowercase(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    if (code < 0x80) {
      result += code >= 'A' && code <= 'Z' ? static_cast<char>(code + 32) : bytes[0];
    } else if (code == kCapitalIWithDot) {
      result += "i\u0307";
    } else {
      append_utf8(result, lowercase_of(code));
    }
  });
  return result;
}

void split_bert_words(std::string_view text,
                      const std::function<void(std::string_view word)>& visit) {
  static const CharacterSet white_space(bert_tables().white_space),
      punctuation(bert_tables().punctuation);
  size_t begin = 0, at = 0;  // of the word, of the character
  const auto end_word = [&] {
    if (begin < at) visit(text.substr(begin, at - begin));
  };
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    const bool is_punctuation = punctuation.has(code);
    if (is_punctuation || white_space.has(code)) {
      end_word();
      if (is_punctuation) visit(bytes);
      begin = at + bytes.size();
    }
    at += bytes.size();
  });
  end_word();
}

}  // namespace seqfuse::text
