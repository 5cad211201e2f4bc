// torch.classes.seqfuse.CacheRule: which tokens a decoder still sees.
#pragma once

#include <torch/custom_class.h>

#include <string>

#include "kv_cache/rule.h"

namespace seqfuse::api {

struct CacheRule : torch::CustomClassHolder {
  // kind: full (slots), window (recent, prune_every), streaming (start, recent, prune_every) or
  // recompute (start, recent); what a kind does not name is ignored. Throws ValueError.
  CacheRule(const std::string& kind, int64_t start, int64_t recent, int64_t prune_every,
            int64_t slots);

  kv_cache::Rule rule;
};

}  // namespace seqfuse::api
