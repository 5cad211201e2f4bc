#include "kv_cache/cpu_step.h"

#include <algorithm>
#include <cmath>

namespace seqfuse::kv_cache {
namespace {

void add_angles(const Rotary& rotary, int64_t position, std::vector<float>& cos,
                std::vector<float>& sin) {
  const double* frequencies = rotary.frequencies().const_data_ptr<double>();
  for (int64_t i = 0; i < rotary.frequencies().numel(); ++i) {
    const double angle = static_cast<double>(position) * frequencies[i];
    cos.push_back(static_cast<float>(std::cos(angle)));
    sin.push_back(static_cast<float>(std::sin(angle)));
  }
}

ops::DecodeAttentionRow slots_seen(const Rule& rule, int64_t token) {
  ops::DecodeAttentionRow row{.slot = rule.slot(token), .first = std::min(rule.start, token + 1)};
  if (token < rule.start) return row;
  // The newest tokens, `token` the last of them: a stretch of the ring, which may go round its end.
  const int64_t count = rule.position(token) - rule.start + 1;
  const int64_t begin = rule.slot(token - count + 1);
  const int64_t before_end = std::min(count, rule.slots() - begin);
  row.newest[0] = {begin, begin + before_end};
  row.newest[1] = {rule.start, rule.start + count - before_end};
  return row;
}

}  // namespace

CpuStep cpu_step(const Rule& rule, const Rotary& rotary, const std::vector<int64_t>& lengths,
                 const std::vector<bool>& active) {
  CpuStep step;
  step.angles.half = rotary.frequencies().numel();
  for (size_t row = 0; row < lengths.size(); ++row) {
    const int64_t token = lengths[row];
    add_angles(rotary, token, step.angles.cos, step.angles.sin);
    add_angles(rotary, rule.true_distances ? token : rule.position(token), step.angles.start_cos,
               step.angles.start_sin);
    step.rows.push_back(active[row] ? slots_seen(rule, token)
                                    : ops::DecodeAttentionRow{.active = false});
  }
  return step;
}

}  // namespace seqfuse::kv_cache
