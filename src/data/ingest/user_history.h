// Turns one user's events into the sequence that the dataset stores.
#pragma once

#include <cstdint>
#include <vector>

#include "data/ingest/event_store.h"

namespace seqfuse::data {

struct HistoryOptions {
  bool has_time = false;
  bool keep_file_order =
      false;  // blank times are filled in and order kept; otherwise sorted by time
  bool deduplicate = false;
};

struct HistoryCounts {
  int64_t blank_times = 0;   // filled in
  int64_t out_of_order = 0;  // events earlier than one before them in the file
  int64_t duplicates = 0;    // dropped

  HistoryCounts& operator+=(const HistoryCounts& other) {
    blank_times += other.blank_times;
    out_of_order += other.out_of_order;
    duplicates += other.duplicates;
    return *this;
  }
};

// events: one user's, in file order; changed in place.
//   keep_file_order: blank times are spaced evenly between the nearest known times before and after
//     them, or copied from the only neighbour; then times are made non-decreasing (running
//     maximum).
//   otherwise: sorted by time, fractions included, stable.
//   deduplicate: events equal to an earlier one in item, action and time are dropped.
void make_history(std::vector<Event>& events, const HistoryOptions& options, HistoryCounts& counts);

}  // namespace seqfuse::data
