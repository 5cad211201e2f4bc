// The histories of the kept users, visited in parallel and in bounded memory.
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
  int64_t first_index = 1;  // index of the first kept user among all kept ones, from 1
  int64_t events = 0;       // remaining events
};

class KeptHistories {
 public:
  // Keeps all users and items at first. items: upper bound of their codes. memory: bytes for the
  // ranges being visited.
  KeptHistories(const EventStore& store, const HistoryOptions& options, int64_t memory,
                uint32_t items);

  void drop_user(int64_t position) { keep_user_[static_cast<size_t>(position)] = 0; }
  void drop_item(uint32_t code) {
    keep_item_[code] = 0;
    drops_events_ = true;
  }
  void drop_action(int32_t action) {
    dropped_actions_.insert(action);
    drops_events_ = true;
  }

  // Remaining events of a user as of the last survey; all of them before the first one. Drops take
  // effect at the next survey.
  int64_t events(int64_t position) const;

  // Counts each user's remaining events; returns the number of events of each item, by code.
  std::vector<int64_t> survey();

  // Drops users with fewer than user_events and items with fewer than item_events: counted once, or
  // again after each round until none is left (the k-core). Returns the events of each item that
  // remain, by code. rounds: how many dropped something.
  std::vector<int64_t> drop_below(int64_t user_events, int64_t item_events, bool iterative,
                                  int64_t& rounds);

  // The users in order, cut into ranges of about a million events. The cut depends only on the
  // data.
  std::vector<UserRange> cut() const;

  // Calls body(task, worker) for each task, with as much parallelism as memory for one range each
  // allows. A worker, 0 <= worker < num_threads(), runs one task at a time.
  void run_bounded(int64_t tasks, const std::function<void(int64_t, int64_t)>& body) const;

  // Calls body(position, sequence) for each kept user with remaining events of a range, in order.
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
