#include "data/ingest/user_history.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace seqfuse::data {
namespace {

void fill_blank_times(std::vector<Event>& events, HistoryCounts& counts) {
  const size_t n = events.size();
  for (size_t begin = 0; begin < n;) {
    if (events[begin].time != kNoTime) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < n && events[end].time == kNoTime) ++end;
    counts.blank_times += static_cast<int64_t>(end - begin);
    const int64_t after = end < n ? events[end].time : begin > 0 ? events[begin - 1].time : 0;
    const int64_t before = begin > 0 ? events[begin - 1].time : after;
    const __int128 steps = static_cast<int64_t>(end - begin) + 1;
    for (size_t i = begin; i < end; ++i) {
      const __int128 step = static_cast<int64_t>(i - begin) + 1;
      events[i].time =
          static_cast<int64_t>(before + (static_cast<__int128>(after) - before) * step / steps);
    }
    begin = end;
  }
}

void drop_duplicates(std::vector<Event>& events, HistoryCounts& counts) {
  std::set<std::tuple<int64_t, uint32_t, int32_t>> seen;
  const auto is_repeated = [&](const Event& event) {
    return !seen.emplace(event.time, event.item, event.action).second;
  };
  counts.duplicates += static_cast<int64_t>(std::erase_if(events, is_repeated));
}

}  // namespace

void make_history(std::vector<Event>& events, const HistoryOptions& options,
                  HistoryCounts& counts) {
  if (options.has_time) {
    if (options.keep_file_order) fill_blank_times(events, counts);
    int64_t backwards = 0;
    for (size_t i = 1; i < events.size(); ++i) backwards += events[i].time < events[i - 1].time;
    counts.out_of_order += backwards;
    if (options.keep_file_order) {
      for (size_t i = 1; i < events.size(); ++i) {
        events[i].time = std::max(events[i].time, events[i - 1].time);
      }
    } else if (backwards > 0) {
      std::stable_sort(events.begin(), events.end(),
                       [](const Event& a, const Event& b) { return a.time < b.time; });
    }
  }
  if (options.deduplicate) drop_duplicates(events, counts);
}

}  // namespace seqfuse::data
