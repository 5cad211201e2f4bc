// Items by how often the users of a data set met them: for users whom a model does not know.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset/dataset.h"

namespace seqfuse::serving {

// All items, those with the most events first; equally many: the lower item first. Throws DataError
// if the dataset's file was damaged.
std::vector<int64_t> popular_items(const data::Dataset& dataset);

}  // namespace seqfuse::serving
