// Feeds a long text through a cache of fixed size and measures time, memory and loss along the way.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kv_cache/rule.h"
#include "models/gpt_neox/model.h"

namespace seqfuse::serving {

struct StreamPart {
  int64_t end = 0;     // tokens of the text up to the part's end
  int64_t tokens = 0;  // in the part; the last part may be shorter than the others
  double seconds = 0;  // the median step
  double loss = 0;     // -log p, the mean over its tokens
  int64_t memory = 0;  // bytes_in_use at its end
};

struct StreamOptions {
  int64_t tokens = 0;                              // in all; at least a part
  int64_t part = 10'000;                           // tokens of a part
  std::function<void(const StreamPart&)> on_part;  // after each. May be empty.
  std::function<bool()> interrupted;               // asked before each step. May be empty.
};

// Steps of one text: ids, again and again, each given whatever the model expects. rule: any but recompute;
// not full, unless it holds all tokens. An interruption ends the last part where it is.
std::vector<StreamPart> measure_stream(const models::gpt_neox::Model& model,
                                       const kv_cache::Rule& rule, std::span<const int64_t> ids,
                                       const StreamOptions& options);

// The multiple of the text's length that is nearest to 10,000, or 10,000 where the text is longer: every
// part is the same text, so that its loss can be compared.
int64_t part_for(int64_t text_length);

// The differences between the whole parts that begin once the cache is full.
struct StreamSpread {
  int64_t parts = 0;
  double seconds = 0;  // (slowest - fastest) / fastest
  double loss = 0;     // largest - smallest
  int64_t memory = 0;  // largest - smallest, bytes

  // Time to 2 %, loss to .01, and memory to the byte on a GPU, to 1 MB on a host, which other threads use.
  bool is_flat(at::Device device) const;
};
StreamSpread spread_of(const std::vector<StreamPart>& parts, const kv_cache::Rule& rule,
                       int64_t part);

// The memory that PyTorch's allocator has taken on a GPU; on a host, the resident memory of this process.
int64_t bytes_in_use(at::Device device);

}  // namespace seqfuse::serving
