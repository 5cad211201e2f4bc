// Estimates the memory that decoding needs, before anything is allocated.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "kv_cache/cache.h"
#include "models/gpt_neox/config.h"
#include "models/gpt_neox/weights.h"

namespace seqfuse::serving {

struct MemoryPlan {
  int64_t weights = 0, cache = 0;  // bytes
  int64_t work = 200'000'000;      // upper bound for a pass's temporaries
  int64_t texts = 1, slots = 1;    // of the cache
  std::string rule;                // in words

  int64_t total() const { return weights + cache + work; }
  std::string text() const;  // "weights 5.55 GB, cache 671 MB (full, 2048 tokens; 1 text), ..."
};

MemoryPlan plan_memory(const models::gpt_neox::Config& config, const kv_cache::Rule& rule,
                       int64_t texts, at::ScalarType dtype,
                       const models::gpt_neox::Storage& storage = {});

// Free bytes of the device, or of the host's memory for the CPU; nothing if that is unknown.
std::optional<int64_t> available_memory(at::Device device);

// Throws Error if fewer bytes are available; it says which cache would fit for this batch and which
// batch for this cache.
void check_memory(const MemoryPlan& plan, int64_t available);
// The same with the device's free memory. Does nothing if that is unknown.
void check_memory(const MemoryPlan& plan, at::Device device);

}  // namespace seqfuse::serving
