// The events of a request as a data set's indices: those of a user, or those that people give.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/dataset/dataset.h"
#include "serving/request.h"

namespace seqfuse::serving {

// Items that the data set has, and ids that it does not.
struct FoundItems {
  std::vector<int64_t> items;
  std::vector<size_t> places;  // of each item in the list
  Texts unknown;
};

// Throws UsageError for a blank and, unless skip_unknown, for an unknown id. list: what it is
// called, such as "candidates".
FoundItems find_items(const data::Vocabulary& vocabulary, const Texts& ids, const char* list,
                      bool skip_unknown);

// Oldest first.
struct History {
  int64_t user = -1;  // row of the data set, or -1
  std::vector<int64_t> items;
  std::vector<int64_t> actions, timestamps;  // one for each item; empty: not known
  std::vector<int64_t> context;              // a value per feature
  Texts unknown;                             // ids that were left out
};

// Throws UsageError if the data set has no such user.
History user_history(const data::Dataset& dataset, std::string_view id);

// Of request.items, actions, timestamps and context. Throws UsageError where these do not fit the
// data set or each other.
History given_history(const data::Vocabulary& vocabulary, const Request& request,
                      bool skip_unknown);

// A number in the unit of the data set's times, or ISO 8601 where that unit is known. Throws
// UsageError.
int64_t read_time(const data::Manifest& manifest, std::string_view text);

}  // namespace seqfuse::serving
