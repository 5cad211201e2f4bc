// All events of a data set, grouped by user, in bounded memory: an external counting sort. Events
// arrive in file order; once a buffer is full it is sorted by user and written to a temporary file
// (a run). A user's events are then those of run 0, run 1, ...: still in file order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "data/id_table.h"

namespace seqfuse::data {

struct Event {
  int64_t time;   // kNoTime where the field was blank
  uint32_t user;  // codes of IdTable
  uint32_t item;
  int32_t action;
};
constexpr int64_t kNoTime = INT64_MIN;

class EventStore {
 public:
  // directory: where runs go. buffer_bytes: memory for events, at the least for one run and its
  // sort.
  EventStore(std::filesystem::path directory, int64_t buffer_bytes, const IdTable& users);
  ~EventStore();

  // The next events in file order. file: number of the source file in [0, 64).
  void append(std::vector<Event> events, int file);

  // No more events: sorts the last run and fixes the order of users.
  void finish();

  int64_t num_events() const { return num_events_; }
  // Positions are users in the order of their ids: 0 <= position < num_users().
  int64_t num_users() const { return static_cast<int64_t>(codes_.size()); }
  uint32_t user_code(int64_t position) const { return codes_[static_cast<size_t>(position)]; }
  int64_t count(int64_t position) const;
  uint64_t files(int64_t position) const;  // bit f: the user has events in source file f

  // The events of the users at positions [begin, end): by user, then in file order. Thread-safe.
  std::vector<Event> load(int64_t begin, int64_t end) const;

 private:
  class Run;
  void sort_buffer();

  std::filesystem::path directory_;
  size_t buffer_events_;
  const IdTable& users_;
  std::vector<std::vector<Event>> buffer_;
  size_t buffered_ = 0;
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<int64_t> counts_;      // by code
  std::vector<uint64_t> files_;      // by code
  std::vector<uint32_t> codes_;      // by position
  std::vector<uint32_t> positions_;  // by code
  int64_t num_events_ = 0;
};

}  // namespace seqfuse::data
