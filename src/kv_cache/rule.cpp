#include "kv_cache/rule.h"

#include <fmt/format.h>

#include "base/error.h"

namespace seqfuse::kv_cache {
namespace {

Rule checked(Rule rule) {
  const auto check = [](const char* name, int64_t value, int64_t least) {
    SEQFUSE_CHECK_AS(UsageError, value >= least, "the cache's {} is {}; expected {} or more", name,
                     value, least);
  };
  check("start", rule.start, 0);
  check("recent", rule.recent, rule.start > 0 ? 0 : 1);
  check("pruning step", rule.prune_every, 1);
  return rule;
}

}  // namespace

Rule Rule::full(int64_t slots) {
  SEQFUSE_CHECK_AS(UsageError, slots >= 1, "the cache's size is {}; expected 1 or more", slots);
  return {.kind = Kind::full, .recent = slots - 1};
}

Rule Rule::window(int64_t recent, int64_t prune_every) {
  return checked({.kind = Kind::window, .recent = recent, .prune_every = prune_every});
}

Rule Rule::streaming(int64_t start, int64_t recent, int64_t prune_every) {
  return checked(
      {.kind = Kind::streaming, .start = start, .recent = recent, .prune_every = prune_every});
}

Rule Rule::recompute(int64_t start, int64_t recent) {
  return checked({.kind = Kind::recompute, .start = start, .recent = recent});
}

int64_t Rule::slot(int64_t token) const {
  return token < start ? token : start + (token - start) % ring();
}

int64_t Rule::position(int64_t token) const {
  const int64_t kept = start + recent;
  return token < kept ? token : kept + (token - kept) % prune_every;
}

bool Rule::sees(int64_t token, int64_t other) const {
  if (other > token) return false;
  return other < start || token - other <= position(token) - start;
}

std::string Rule::text() const {
  const std::string pruning =
      prune_every > 1 ? fmt::format(", pruned every {} tokens", prune_every) : "";
  switch (kind) {
    case Kind::full:
      return fmt::format("full, {} tokens", slots());
    case Kind::window:
      return fmt::format("window, the newest {} tokens{}", recent, pruning);
    case Kind::streaming:
      return fmt::format("streaming, the first {} and the newest {} tokens{}", start, recent,
                         pruning);
    case Kind::recompute:
      return fmt::format("recompute, the first {} and the newest {} tokens", start, recent);
  }
  return "?";
}

}  // namespace seqfuse::kv_cache
