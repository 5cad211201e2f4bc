// All events of a dataset, grouped by user, in bounded memory. Events arrive in file order; when
// memory is full they are written to a temporary file (a run), user by user. A user's events are
// then those of run 0, run 1, ..., memory: still in file order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "data/ingest/event_blocks.h"
#include "data/ingest/id_table.h"

namespace seqfuse::data {

class EventStore {
 public:
  // directory: for the runs. buffer_bytes: memory for events, at least 1 MiB.
  EventStore(std::filesystem::path directory, int64_t buffer_bytes, const IdTable& users);
  ~EventStore();

  // Appends the next events in file order, in pieces. file: number of the source file in [0, 64).
  // Must not run concurrently with users.code().
  void append(std::span<const std::span<const Event>> pieces, int file);

  // Ends the input and fixes the order of users.
  void finish();

  int64_t num_events() const { return num_events_; }
  bool has_fractions() const { return has_fractions_; }  // times between whole units
  // Positions are users in the order of their ids: 0 <= position < num_users().
  int64_t num_users() const { return static_cast<int64_t>(codes_.size()); }
  uint32_t user_code(int64_t position) const { return codes_[static_cast<size_t>(position)]; }
  int64_t count(int64_t position) const;
  uint64_t files(int64_t position) const;  // bit f: the user has events in source file f

  // Replaces `events` by those of the users at positions [begin, end): by user, then in file order.
  // Thread-safe.
  void load(int64_t begin, int64_t end, std::vector<Event>& events) const;

 private:
  class Run;
  void spill();

  std::filesystem::path directory_;
  int64_t buffer_bytes_;
  const IdTable& users_;
  EventBlocks blocks_;  // events in memory
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<int64_t> counts_;      // by code
  std::vector<uint64_t> files_;      // by code
  std::vector<uint32_t> codes_;      // by position
  std::vector<uint32_t> positions_;  // by code
  int64_t num_events_ = 0;
  bool has_fractions_ = false;
};

}  // namespace seqfuse::data
