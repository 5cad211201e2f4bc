// Passes over the histories of the users that are kept, in parallel and in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "data/ingest/event_store.h"
#include "data/ingest/user_history.h"

namespace seqfuse::data {

// Users at positions [begin, end) of the event store.
struct UserRange {
  int64_t begin = 0, end = 0;
  int64_t first_index = 1;  // of its first kept user among all kept ones, from 1
  int64_t events = 0;       // that are left
};

class HistoryPass {
 public:
  // All users and items are kept at first. items: bound of their codes. memory: bytes for ranges
  // that are being visited.
  HistoryPass(const EventStore& store, const HistoryOptions& options, int64_t memory,
              uint32_t items);

  void drop_user(int64_t position) { keep_user_[static_cast<size_t>(position)] = 0; }
  void drop_users_below(int64_t events);
  void drop_item(uint32_t code) {
    keep_item_[code] = 0;
    drops_events_ = true;
  }
  void drop_action(int32_t action) {
    dropped_actions_.insert(action);
    drops_events_ = true;
  }

  // Events of a user that are left: by the last survey, or all of them before one. What is dropped
  // counts from the next survey on.
  int64_t events(int64_t position) const;

  // Counts what is left of each user; returns events per item, by code.
  std::vector<int64_t> survey();

  // The users in order, cut into ranges of about a million events: the cut depends on the data
  // alone.
  std::vector<UserRange> cut() const;

  // body(task, worker) for each task, side by side as far as the memory allows one range for each.
  // No two tasks of one worker, 0 <= worker < num_threads(), run at a time.
  void run_bounded(int64_t tasks, const std::function<void(int64_t, int64_t)>& body) const;

  // body(position, sequence) for each kept user of a range that has events left, in order.
  using Body = std::function<void(int64_t, const std::vector<Event>&)>;
  void visit(const UserRange& range, HistoryCounts& counts, const Body& body) const;

  // The same for all users; ranges run in parallel.
  void for_each(const Body& body) const;

 private:
  const EventStore& store_;
  HistoryOptions options_;
  int64_t memory_;
  std::vector<char> keep_user_;  // by position
  std::vector<char> keep_item_;  // by code
  std::set<int32_t> dropped_actions_;
  bool drops_events_ = false;
  std::vector<int64_t> user_events_;  // by position, after a survey
};

}  // namespace seqfuse::data
