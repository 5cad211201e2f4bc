// The most popular items of a data set, for users whom a model does not know.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset/dataset.h"

namespace seqfuse::serving {

// All items by their number of events, the most first; of equals, the lower item first. Throws DataError
// if the dataset's file was damaged.
std::vector<int64_t> popular_items(const data::Dataset& dataset);

}  // namespace seqfuse::serving
