#include "data/ingest/kept_histories.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/parallel.h"

namespace seqfuse::data {
namespace {

constexpr int64_t kRangeEvents = int64_t{1} << 20;
constexpr int64_t kBytesPerEvent = 80;  // loaded, joined from runs, and as columns
// Events loaded at a time, so that they are still in the cache when they are visited.
constexpr int64_t kLoadEvents = int64_t{1} << 14;

}  // namespace

KeptHistories::KeptHistories(const EventStore& store, const HistoryOptions& options, int64_t memory,
                             uint32_t items)
    : store_(store),
      options_(options),
      memory_(memory),
      keep_user_(static_cast<size_t>(store.num_users()), 1),
      keep_item_(items, 1) {}

int64_t KeptHistories::events(int64_t position) const {
  const auto p = static_cast<size_t>(position);
  if (keep_user_[p] == 0) return 0;
  return user_events_.empty() ? store_.count(position) : user_events_[p];
}

std::vector<int64_t> KeptHistories::survey() {
  std::vector<std::atomic<int64_t>> item_events(keep_item_.size());
  std::vector<int64_t> user_events(keep_user_.size());
  for_each([&](int64_t position, const std::vector<Event>& history) {
    user_events[static_cast<size_t>(position)] = static_cast<int64_t>(history.size());
    for (const Event& event : history) {
      item_events[event.item].fetch_add(1, std::memory_order_relaxed);
    }
  });
  user_events_ = std::move(user_events);
  return {item_events.begin(), item_events.end()};
}

std::vector<int64_t> KeptHistories::drop_below(int64_t least_of_user, int64_t least_of_item,
                                               bool iterative, int64_t& rounds) {
  std::vector<int64_t> item_events = survey();
  for (rounds = 0; rounds == 0 || iterative; ++rounds) {
    bool dropped = false;
    for (int64_t position = 0; position < store_.num_users(); ++position) {
      const int64_t n = events(position);
      if (n == 0 || n >= least_of_user) continue;
      drop_user(position);
      dropped = true;
    }
    for (size_t code = 0; code < item_events.size(); ++code) {
      if (item_events[code] == 0 || item_events[code] >= least_of_item) continue;
      drop_item(static_cast<uint32_t>(code));
      dropped = true;
    }
    if (!dropped) break;
    item_events = survey();
  }
  return item_events;
}

std::vector<UserRange> KeptHistories::cut() const {
  std::vector<UserRange> ranges;
  UserRange range;
  int64_t next_index = 1;
  for (int64_t position = 0; position < store_.num_users(); ++position) {
    range.events += events(position);
    next_index += events(position) > 0 ? 1 : 0;
    range.end = position + 1;
    if (range.events >= kRangeEvents || (range.end == store_.num_users() && range.events > 0)) {
      ranges.push_back(range);
      range = {range.end, range.end, next_index};
    }
  }
  return ranges;
}

void KeptHistories::run_bounded(int64_t tasks,
                                const std::function<void(int64_t, int64_t)>& body) const {
  const int64_t allowed = std::max<int64_t>(1, memory_ / (kRangeEvents * kBytesPerEvent));
  std::atomic<int64_t> next{0};
  parallel_tasks(std::min({tasks, allowed, int64_t{num_threads()}}), [&](int64_t worker) {
    for (int64_t task; (task = next.fetch_add(1)) < tasks;) body(task, worker);
  });
}

void KeptHistories::visit(const UserRange& range, HistoryCounts& counts, const Body& body) const {
  std::vector<Event> events, history;
  for (int64_t begin = range.begin, end = begin; begin < range.end; begin = end) {
    for (int64_t total = 0; end < range.end && total < kLoadEvents; ++end)
      total += store_.count(end);
    store_.load(begin, end, events);
    auto next = events.cbegin();
    for (int64_t position = begin; position < end; ++position) {
      const auto first = next;
      next += store_.count(position);
      if (keep_user_[static_cast<size_t>(position)] == 0) continue;
      history.assign(first, next);
      if (drops_events_) {
        std::erase_if(history, [&](const Event& event) {
          return keep_item_[event.item] == 0 || dropped_actions_.contains(event.action);
        });
      }
      make_history(history, options_, counts);
      if (!history.empty()) body(position, history);
    }
  }
}

void KeptHistories::for_each(const Body& body) const {
  const std::vector<UserRange> ranges = cut();
  run_bounded(static_cast<int64_t>(ranges.size()), [&](int64_t range, int64_t) {
    HistoryCounts counts;
    visit(ranges[static_cast<size_t>(range)], counts, body);
  });
}

}  // namespace seqfuse::data
