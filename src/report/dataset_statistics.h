// Statistics of a dataset: sizes, history lengths, item popularity.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"

namespace seqfuse::report {

// Users whose number of events is in [low, high].
struct LengthBucket {
  int64_t low = 0, high = 0, users = 0;
};

struct RankedItem {
  int64_t rank = 0, events = 0;  // rank 1: the item with the most events
};

struct DatasetStatistics {
  std::string name, hash;
  int64_t users = 0, items = 0, events = 0;
  int64_t min_length = 0, median_length = 0, max_length = 0;
  double mean_length = 0;
  std::vector<LengthBucket> lengths;   // 0, 1, 2-3, 4-7, ...: from the first to the last with users
  std::vector<RankedItem> popularity;  // at logarithmically spaced ranks
  int64_t items_without_events = 0;
  double top_percent_share = 0;  // share of all events in the most popular 1% of items
};

// One pass over all events; memory for one count per item and one length per user.
DatasetStatistics dataset_statistics(const data::Dataset& dataset);

}  // namespace seqfuse::report
