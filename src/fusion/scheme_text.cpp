#include "fusion/scheme_text.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace seqfuse::fusion {
namespace {

constexpr std::string_view kDigits = "0123456789";

bool consists_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}

[[noreturn]] void refuse_segments(std::string_view text) {
  throw_error<UsageError>(
      "scheme: --segments has '{}'; expected positions from 1 to {} such as 1-2,3-4 or 1 2 3 4, or "
      "none",
      text, kOps);
}

// Parses digits; a number that overflows becomes kOps + 1, which is no position.
int position(std::string_view text) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : kOps + 1;
}

// The positions of "1-2,3-4" or "1 2 3 4" in their order.
std::vector<int> positions(std::string_view text) {
  std::vector<int> result;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(", "), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (item.empty()) continue;
    const size_t dash = item.find('-');
    if (dash == std::string_view::npos) {
      if (!consists_of(item, kDigits)) refuse_segments(item);
      result.push_back(position(item));
      continue;
    }
    const std::string_view first = item.substr(0, dash), last = item.substr(dash + 1);
    if (!consists_of(first, kDigits) || !consists_of(last, kDigits) || result.size() % 2 != 0)
      refuse_segments(item);
    result.push_back(position(first));
    result.push_back(position(last));
  }
  return result;
}

}  // namespace

int64_t read_number(std::string_view text) {
  constexpr std::string_view expected = "expected a number from 0 to 65535 or 16 characters 0 or 1";
  const bool bits = consists_of(text, "01");
  if (bits && (text.size() > 5 || (text.size() > 1 && text[0] == '0'))) {
    SEQFUSE_CHECK_AS(UsageError, text.size() == 16, "scheme: '{}' has {} characters; {}", text,
                     text.size(), expected);
    int64_t number = 0;
    for (const char c : text) number = 2 * number + (c - '0');
    return number;
  }
  const size_t other = text.find_first_not_of(kDigits);
  SEQFUSE_CHECK_AS(UsageError, !text.empty(), "scheme: nothing was given; {}", expected);
  SEQFUSE_CHECK_AS(UsageError, other == std::string_view::npos,
                   "scheme: character {} of '{}' is not a digit; {}", other + 1, text, expected);
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  SEQFUSE_CHECK_AS(UsageError, error == std::errc() && number <= kMostNumber,
                   "scheme: {} is out of range; {}", text, expected);
  return number;
}

std::vector<Segment> read_segments(std::span<const std::string> texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : " ") + text;
  if (all == "none") return {};
  const std::vector<int> ends = positions(all);
  SEQFUSE_CHECK_AS(UsageError, !ends.empty() && ends.size() % 2 == 0,
                   "scheme: --segments has {} positions: '{}'; expected a first and a last one of "
                   "each segment, such as 1-2,3-4, or none",
                   ends.size(), all);
  std::vector<Segment> segments;
  int next = 1;
  for (size_t i = 0; i < ends.size(); i += 2) {
    const int first = ends[i], last = ends[i + 1];
    SEQFUSE_CHECK_AS(UsageError, first >= next && first < last && last <= kOps,
                     "scheme: --segments has {}-{}; expected two operators or more from {} to {}, "
                     "in ascending order",
                     first, last, next, kOps);
    segments.push_back({first - 1, last - 1});
    next = last + 1;
  }
  return segments;
}

std::string printed(int64_t number, const Scheme& scheme) {
  const std::vector<Segment> segments = scheme.fused_segments();
  std::string line = fmt::format("{} {} {}", number, scheme.mha() == Mha::written_by_hand ? 1 : 0,
                                 segments.size());
  for (const Segment& segment : segments)
    line += fmt::format(" {} {}", segment.first + 1, segment.last + 1);
  return line;
}

std::string drawn(const Scheme& scheme) {
  std::string line;
  for (const Segment& segment : scheme.segments()) {
    if (!line.empty()) line += ' ';
    if (segment.fused()) line += '[';
    for (int op = segment.first; op <= segment.last; ++op) {
      if (op > segment.first) line += ' ';
      line += kGraph[static_cast<size_t>(op)].name;
    }
    if (segment.fused()) line += ']';
  }
  return line;
}

}  // namespace seqfuse::fusion
