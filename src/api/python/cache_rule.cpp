#include "api/python/cache_rule.h"

#include "api/python/errors.h"

namespace seqfuse::api {
using kv_cache::Rule;
namespace {

Rule make_rule(const std::string& kind, int64_t start, int64_t recent, int64_t prune_every,
               int64_t slots) {
  if (kind == "full") return Rule::full(slots);
  if (kind == "window") return Rule::window(recent, prune_every);
  if (kind == "streaming") return Rule::streaming(start, recent, prune_every);
  if (kind == "recompute") return Rule::recompute(start, recent);
  throw_error<UsageError>("cache is '{}'; expected full, window, streaming or recompute", kind);
}

}  // namespace

CacheRule::CacheRule(const std::string& kind, int64_t start, int64_t recent, int64_t prune_every,
                     int64_t slots)
    : rule(with_python_errors([&] { return make_rule(kind, start, recent, prune_every, slots); })) {
}

}  // namespace seqfuse::api
