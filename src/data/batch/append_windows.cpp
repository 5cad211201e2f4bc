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

Batch joined_windows(std::span<const Batch* const> parts) {
  int64_t events = 0;
  for (const Batch* part : parts) events += part->num_events();
  Batch all;
  if (parts.empty()) return all;
  all.items.reserve(events);
  if (!parts.front()->actions.empty()) all.actions.reserve(events);
  if (!parts.front()->timestamps.empty()) all.timestamps.reserve(events);
  for (const Batch* part : parts) append_windows(all, *part);
  return all;
}

}  // namespace seqfuse::data
