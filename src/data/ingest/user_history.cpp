#include "data/ingest/user_history.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace seqfuse::data {
namespace {

bool is_blank(const Event& event) {
  return event.fraction == Time::kBlank;
}

// Fractions of a unit since 0.
__int128 total(const Event& event) {
  return static_cast<__int128>(event.time) * Time::kFractions + event.fraction;
}

void set_time(Event& event, __int128 total) {
  __int128 value = total / Time::kFractions;
  if (value * Time::kFractions > total) --value;  // rounded down
  event.time = static_cast<int64_t>(value);
  event.fraction = static_cast<uint32_t>(total - value * Time::kFractions);
}

void fill_blank_times(std::vector<Event>& events, HistoryCounts& counts) {
  const size_t n = events.size();
  for (size_t begin = 0; begin < n;) {
    if (!is_blank(events[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < n && is_blank(events[end])) ++end;
    counts.blank_times += static_cast<int64_t>(end - begin);
    const __int128 after = end < n ? total(events[end]) : begin > 0 ? total(events[begin - 1]) : 0;
    const __int128 before = begin > 0 ? total(events[begin - 1]) : after;
    const __int128 steps = static_cast<int64_t>(end - begin) + 1;
    for (size_t i = begin; i < end; ++i) {
      const __int128 step = static_cast<int64_t>(i - begin) + 1;
      set_time(events[i],
               before + (after - before) / steps * step + (after - before) % steps * step / steps);
    }
    begin = end;
  }
}

void drop_duplicates(std::vector<Event>& events, HistoryCounts& counts) {
  std::set<std::tuple<Time, uint32_t, int32_t>> seen;
  const auto is_repeated = [&](const Event& event) {
    return !seen.emplace(event.point(), event.item, event.action).second;
  };
  counts.duplicates += static_cast<int64_t>(std::erase_if(events, is_repeated));
}

bool is_earlier(const Event& a, const Event& b) {
  return a.point() < b.point();
}

}  // namespace

void make_history(std::vector<Event>& events, const HistoryOptions& options,
                  HistoryCounts& counts) {
  if (options.has_time) {
    if (options.keep_file_order) fill_blank_times(events, counts);
    bool sorted = true;
    size_t latest = 0;
    for (size_t i = 1; i < events.size(); ++i) {
      if (!is_earlier(events[i], events[latest])) {
        latest = i;
        continue;
      }
      ++counts.out_of_order;
      sorted = false;
      if (!options.keep_file_order) continue;
      events[i].time = events[latest].time;
      events[i].fraction = events[latest].fraction;
    }
    if (!sorted && !options.keep_file_order) {
      std::stable_sort(events.begin(), events.end(), is_earlier);
    }
  }
  if (options.deduplicate) drop_duplicates(events, counts);
}

}  // namespace seqfuse::data
