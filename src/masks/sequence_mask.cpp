#include "masks/sequence_mask.h"
#include "masks/user_masks.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/names.h"

namespace seqfuse::masks {
namespace {

using Numbers = std::vector<int64_t>;

struct Kind {
  const char* name;
  const char* form;  // of a rule, for messages
  Numbers defaults;  // of its numbers
  bool is_window;    // depends on the distance of two tokens alone
  Mask (*make)(int64_t tokens, const Numbers& numbers);
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"causal", "causal", {}, true, [](int64_t n, const Numbers&) { return causal(n, n); }},
      {"sliding",
       "sliding:SIDE",
       {64},
       true,
       [](int64_t n, const Numbers& v) { return window(n, n, v[0], v[0]); }},
      {"window",
       "window:LEFT,RIGHT",
       {64, 64},
       true,
       [](int64_t n, const Numbers& v) { return window(n, n, v[0], v[1]); }},
      {"dilated",
       "dilated:SIDE,STEP",
       {64, 4},
       true,
       [](int64_t n, const Numbers& v) { return dilated(n, n, v[0], v[0], v[1]); }},
      {"global",
       "global:TOKENS",
       {64},
       false,
       [](int64_t n, const Numbers& v) { return global(n, n, v[0]); }},
      {"longformer",
       "longformer:SIDE,TOKENS",
       {64, 64},
       false,
       [](int64_t n, const Numbers& v) { return longformer(n, n, v[0], v[1]); }},
      {"random",
       "random:BLOCKS,SEED",
       {3, 1},
       false,
       [](int64_t n, const Numbers& v) {
         return random_blocks(n, n, v[0], kBlock, static_cast<uint64_t>(v[1]));
       }},
      {"bigbird",
       "bigbird:SIDE,TOKENS,BLOCKS,SEED",
       {64, 64, 3, 1},
       false,
       [](int64_t n, const Numbers& v) {
         return bigbird(n, n, v[0], v[1], v[2], static_cast<uint64_t>(v[3]));
       }},
  };
  return all;
}

const Kind& kind_named(const std::string& name, const std::string& rule) {
  for (const Kind& kind : kinds()) {
    if (name == kind.name) return kind;
  }
  SEQFUSE_CHECK_AS(UsageError, name != "none" && name != "full",
                   "mask '{}': {} takes no numbers; expected {}", rule, name, name);
  std::vector<std::string> names{"none", "full"};
  std::string forms = "none";
  for (const Kind& kind : kinds()) {
    names.emplace_back(kind.name);
    forms += std::string(", ") + kind.form;
  }
  throw_error<UsageError>("mask '{}': there is no kind '{}'{}; expected {}", rule, name,
                          did_you_mean(name, names), forms);
}

// The numbers of a rule after its colon, then defaults for missing ones.
Numbers numbers_of(const Kind& kind, std::string_view text, const std::string& rule) {
  Numbers numbers = kind.defaults;
  SEQFUSE_CHECK_AS(UsageError, !numbers.empty() || text.empty(),
                   "mask '{}': {} takes no numbers; expected {}", rule, kind.name, kind.name);
  for (size_t i = 0; !text.empty(); ++i) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    SEQFUSE_CHECK_AS(UsageError,
                     i < numbers.size() && error == std::errc() &&
                         stop == word.data() + word.size() && value >= 0 && value < kUnlimited,
                     "mask '{}': expected {}, with whole numbers of 0 or more", rule, kind.form);
    numbers[i] = value;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return numbers;
}

// The intervals of the keys that query q of a mask sees.
void append_intervals(const Rule& rule, int64_t q, Numbers& bounds) {
  bool open = false;  // the last interval ends where the next word begins
  for (int64_t first = 0; first < rule.keys; first += kBlock) {
    KeyBits bits = seen_keys(rule, 0, q, first);
    int at = 0;  // bits below are done
    while (at < kBlock) {
      const KeyBits rest = bits >> at;
      if (open) {
        const int run = std::countr_one(rest);
        at += std::min(run, static_cast<int>(kBlock) - at);
        if (at < kBlock) {
          bounds.push_back(first + at);
          open = false;
        }
      } else if (rest == 0) {
        break;
      } else {
        at += std::countr_zero(rest);
        bounds.push_back(first + at);
        open = true;
      }
    }
  }
  if (open) bounds.push_back(rule.keys);
}

}  // namespace

SequenceMask SequenceMask::parse(std::span<const std::string> rules) {
  SequenceMask mask;
  for (const std::string& rule : rules) {
    const size_t colon = std::min(rule.find(':'), rule.size());
    const std::string name = rule.substr(0, colon);
    if (rule == "none" || rule == "full") continue;
    const Kind& kind = kind_named(name, rule);
    const Numbers numbers =
        numbers_of(kind, std::string_view(rule).substr(std::min(colon + 1, rule.size())), rule);
    (kind.is_window ? mask.windows_ : mask.others_).emplace_back([&kind, numbers](int64_t tokens) {
      return kind.make(tokens, numbers);
    });
    mask.of_length(1);  // refuses numbers that the kind does not take
  }
  return mask;
}

Mask SequenceMask::of_length(int64_t tokens) const {
  Mask mask = full(tokens, tokens);
  for (const auto* makers : {&windows_, &others_}) {
    for (const Maker& make : *makers) mask = mask & make(tokens);
  }
  return mask;
}

std::shared_ptr<const SequenceMask::Intervals> SequenceMask::intervals(int64_t tokens) const {
  const std::lock_guard lock(cache_->mutex);
  auto& made = cache_->of_length[tokens];
  if (made) return made;
  Mask mask = full(tokens, tokens);
  for (const Maker& make : others_) mask = mask & make(tokens);
  std::vector<Numbers> rows(static_cast<size_t>(tokens));
  size_t most = 0;
  for (int64_t q = 0; q < tokens; ++q) {
    append_intervals(mask.rule(), q, rows[static_cast<size_t>(q)]);
    most = std::max(most, rows[static_cast<size_t>(q)].size());
  }
  auto intervals = std::make_shared<Intervals>();
  intervals->count = static_cast<int64_t>(most / 2);
  for (Numbers& row : rows) {
    row.resize(most, 0);
    intervals->bounds.insert(intervals->bounds.end(), row.begin(), row.end());
  }
  made = std::move(intervals);
  return made;
}

Mask SequenceMask::with_others(Mask mask, std::span<const int64_t> lengths, int64_t batch,
                               std::span<const int64_t> first_rows,
                               std::span<const int64_t> first_keys) const {
  if (others_.empty()) return mask;
  std::vector<std::shared_ptr<const Intervals>> parts;
  int64_t count = 0;
  for (const int64_t length : lengths) {
    parts.push_back(intervals(length));
    count = std::max(count, parts.back()->count);
  }
  Numbers bounds(static_cast<size_t>(batch * mask.queries() * count * 2), 0);
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t width = parts[s]->count * 2;
    for (int64_t q = 0; q < lengths[s]; ++q) {
      for (int64_t i = 0; i < width; i += 2) {
        const int64_t* from = parts[s]->bounds.data() + q * width + i;
        int64_t* to = bounds.data() + (first_rows[s] + q) * count * 2 + i;
        if (from[0] == from[1]) continue;
        to[0] = from[0] + first_keys[s];
        to[1] = from[1] + first_keys[s];
      }
    }
  }
  return mask & from_intervals(batch, mask.queries(), mask.keys(), count, bounds);
}

Mask SequenceMask::packed(std::span<const int64_t> lengths) const {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  Mask mask = documents(total, total, {{lengths.begin(), lengths.end()}});
  for (const Maker& make : windows_) mask = mask & make(total);
  Numbers starts;
  int64_t start = 0;
  for (const int64_t length : lengths) {
    starts.push_back(start);
    start += length;
  }
  return with_others(std::move(mask), lengths, 1, starts, starts);
}

Mask SequenceMask::padded(std::span<const int64_t> lengths, int64_t length) const {
  Mask mask = masks::lengths(length, length, lengths, lengths);
  for (const Maker& make : windows_) mask = mask & make(length);
  const auto batch = static_cast<int64_t>(lengths.size());
  Numbers rows;
  for (int64_t b = 0; b < batch; ++b) rows.push_back(b * length);
  const Numbers keys(lengths.size(), 0);
  return with_others(std::move(mask), lengths, batch, rows, keys);
}

}  // namespace seqfuse::masks
