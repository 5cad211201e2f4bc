#include "data/batch/append_windows.h"

namespace seqfuse::data {
namespace {

void append(std::vector<int64_t>& to, const std::vector<int64_t>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

void append_windows(Batch& to, const Batch& from) {
  if (to.offsets.empty()) to.offsets = {0};
  const int64_t before = to.offsets.back();
  for (size_t b = 1; b < from.offsets.size(); ++b) to.offsets.push_back(before + from.offsets[b]);
  append(to.users, from.users);
  append(to.items, from.items);
  append(to.actions, from.actions);
  append(to.timestamps, from.timestamps);
  append(to.num_candidates, from.num_candidates);
  to.context.resize(from.context.size());
  for (size_t f = 0; f < from.context.size(); ++f) append(to.context[f], from.context[f]);
}

}  // namespace seqfuse::data
