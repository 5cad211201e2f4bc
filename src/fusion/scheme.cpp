#include "fusion/scheme.h"

#include <algorithm>

#include "base/error.h"

namespace seqfuse::fusion {
namespace {

constexpr int kCharacters = kOps + 1;

int character(int64_t number, int position) {
  return static_cast<int>(number >> (kCharacters - 1 - position) & 1);
}

}  // namespace

Scheme::Scheme(std::span<const Segment> segments, Mha mha) : mha_(mha) {
  int next = 0;
  for (const Segment& segment : segments) {
    SEQFUSE_CHECK(segment.first >= next && segment.last >= segment.first && segment.last < kOps,
                  "scheme: segment of operators {} to {}; expected one in {} to {}", segment.first,
                  segment.last, next, kOps - 1);
    for (int op = segment.first; op < segment.last; ++op)
      cuts_ = static_cast<uint16_t>(cuts_ & ~(1 << op));
    next = segment.last + 1;
  }
}

Scheme Scheme::from_number(int64_t number) {
  SEQFUSE_CHECK_AS(UsageError, number >= 0 && number <= kMostNumber,
                   "scheme: the number is {}; expected 0 to {}", number, kMostNumber);
  Scheme scheme;
  for (int op = 0; op + 1 < kOps; ++op) {
    if (character(number, op + 1) == character(number, op + 2))
      scheme.cuts_ = static_cast<uint16_t>(scheme.cuts_ & ~(1 << op));
  }
  scheme.mha_ = character(number, 0) == 1 ? Mha::written_by_hand : Mha::by_operators;
  return scheme;
}

Scheme Scheme::from_string(std::string_view text) {
  const size_t other = text.find_first_not_of("01");
  SEQFUSE_CHECK_AS(UsageError, other == std::string_view::npos,
                   "scheme: character {} of '{}' is neither 0 nor 1; expected {} of them",
                   other + 1, text, kCharacters);
  SEQFUSE_CHECK_AS(UsageError, text.size() == kCharacters,
                   "scheme: '{}' has {} characters; expected {}, each 0 or 1", text, text.size(),
                   kCharacters);
  int64_t number = 0;
  for (const char c : text) number = 2 * number + (c - '0');
  return from_number(number);
}

std::vector<Segment> Scheme::segments() const {
  std::vector<Segment> result;
  int first = 0;
  for (int op = 0; op < kOps; ++op) {
    if (op + 1 < kOps && !cut_after(op)) continue;
    result.push_back({first, op});
    first = op + 1;
  }
  return result;
}

std::vector<Segment> Scheme::fused_segments() const {
  std::vector<Segment> result = segments();
  std::erase_if(result, [](const Segment& segment) { return !segment.fused(); });
  return result;
}

bool Scheme::has(Segment segment) const {
  const std::vector<Segment> all = segments();
  return std::find(all.begin(), all.end(), segment) != all.end();
}

int64_t Scheme::number() const {
  int64_t number = mha_ == Mha::written_by_hand ? 1 : 0;
  int bit = 0;
  for (int op = 0; op < kOps; ++op) {
    number = 2 * number + bit;
    if (op + 1 < kOps && cut_after(op)) bit = 1 - bit;
  }
  return number;
}

std::string Scheme::string() const {
  return characters_of(number());
}

std::string characters_of(int64_t number) {
  return fmt::format("{:016b}", number);
}

}  // namespace seqfuse::fusion
