// What generate, perplexity and bench decode share: the flags of a language model and its cache, and opening it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "kv_cache/rule.h"
#include "models/gpt_neox/model.h"

namespace seqfuse::cli {

struct DecodingFlags {
  std::string model, device = "auto", dtype = "auto", weights = "auto", cache = "full";
  std::string shape;  // instead of model: random weights of a named shape
  int64_t start = 4, recent = 0, prune_every = 1, cache_size = 0;

  void add_to(CLI::App& app);
};

// The cache rule of the flags. --recent defaults to the model's trained length. longest: tokens of
// the longest text, which a full cache need not exceed.
kv_cache::Rule cache_rule(const DecodingFlags& flags, const models::gpt_neox::Config& config,
                          int64_t longest);

// Capacity of a full cache in tokens: --cache-size, or the model's trained length.
int64_t full_cache_size(const DecodingFlags& flags, const models::gpt_neox::Config& config);

// config.json of the model, or the named shape.
models::gpt_neox::Config open_config(const DecodingFlags& flags);

// Says what the weights and the cache will take, checks that it is there, and loads the model. verb:
// the tag of messages. texts: rows of the cache. Throws Error that says which cache and which batch
// would fit.
models::gpt_neox::Model open_model(const DecodingFlags& flags, const char* verb,
                                   const models::gpt_neox::Config& config,
                                   const kv_cache::Rule& rule, int64_t texts);

// Parses "5,34,63" as ids. Throws UsageError.
std::vector<int64_t> parse_ids(const std::string& text);

}  // namespace seqfuse::cli
