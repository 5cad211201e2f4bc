// Train, validation and test files that other tools have made.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/ingest/event_store.h"
#include "data/ingest/id_table.h"

namespace seqfuse::data {

enum class Part { train, validation, test };

// The part that a file's base name tells: one of its words is train, training, valid, validation,
// val, dev, test or testing ("ml-1m.train.inter", "test_2.csv"). Nothing if none or several are.
std::optional<Part> part_of(std::string_view base_name);

// Checks that the split `leave_one_out` gives exactly these parts: each user has training events,
// then one for validation, then one for test.
class GivenSplit {
 public:
  // Events in file order; all of training first, those of test last.
  void add(std::span<const Event> events, Part part, uint32_t user_bound);

  bool has(Part part) const { return events_[static_cast<size_t>(part)] > 0; }

  // Throws DataError that names a user and says what differs, and for how many users.
  void check(const IdTable& users) const;

 private:
  struct User {
    Time last_train, validation, test;
    int64_t train_events = 0, validation_events = 0, test_events = 0;
  };
  std::string problem(const User& user) const;

  std::vector<User> users_;  // by code
  int64_t events_[3] = {};   // per part
};

}  // namespace seqfuse::data
