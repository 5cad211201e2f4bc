#include "text/unicode/unicode_version.h"

#include <algorithm>
#include <span>

#include "base/utf8.h"
#include "text/unicode/unicode_tables.h"

namespace seqfuse::text {
namespace {

// The range that contains a character, or null.
template <class Range>
const Range* find_range(std::span<const Range> ranges, char32_t code) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code,
                       [](char32_t c, const Range& range) { return c < range.first; });
  if (after == ranges.begin() || code > std::prev(after)->last) return nullptr;
  return &*std::prev(after);
}

}  // namespace

std::optional<std::string> with_stand_ins(std::string_view text) {
  const std::span<const StandIn> ranges = stand_ins();
  std::optional<std::string> result;
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0xE0) {  // below U+0800, where nothing changed
      ++i;
      continue;
    }
    const auto [code, length] = character_at(text, i);
    if (const StandIn* range = find_range(ranges, code)) {
      if (!result) result = text;
      std::string by;
      append_utf8(by, range->by);
      result->replace(i, length, by);
    }
    i += length;
  }
  return result;
}

bool is_outside_normal_forms(char32_t code) {
  return find_range(outside_normal_forms(), code) != nullptr ||
         (code != 0x180E && find_range(stand_ins(), code) != nullptr);
}

}  // namespace seqfuse::text
