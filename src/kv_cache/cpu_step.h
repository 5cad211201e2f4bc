// One new token a row on the CPU: what attention has to know, from the lengths of the rows alone.
#pragma once

#include <cstdint>
#include <vector>

#include "kv_cache/rotary.h"
#include "kv_cache/rule.h"
#include "ops/torch/decode/decode.h"

namespace seqfuse::kv_cache {

struct CpuStep {
  std::vector<ops::DecodeAttentionRow> rows;
  ops::DecodeAngles angles;
};

// lengths[row]: tokens so far, so the index of the new one. active[row] false: the row stays as it is.
CpuStep cpu_step(const Rule& rule, const Rotary& rotary, const std::vector<int64_t>& lengths,
                 const std::vector<bool>& active);

}  // namespace seqfuse::kv_cache
