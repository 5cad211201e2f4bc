// A request's events as dataset indices: those of a user, or those given in the request.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/dataset/dataset.h"
#include "serving/request.h"

namespace seqfuse::serving {

// The known items of a list, and the ids that are unknown.
struct FoundItems {
  std::vector<int64_t> items;
  std::vector<size_t> places;  // index of each item in the list
  Texts unknown;
};

// Throws UsageError for a blank and, unless skip_unknown, for an unknown id. list: its name in
// messages, such as "candidates".
FoundItems find_items(const data::Vocabulary& vocabulary, const Texts& ids, const char* list,
                      bool skip_unknown);

// Oldest first.
struct History {
  int64_t user = -1;  // row of the dataset, or -1
  std::vector<int64_t> items;
  std::vector<int64_t> actions, timestamps;  // one per item; empty: not known
  std::vector<int64_t> context;              // a value per feature
  Texts unknown;                             // skipped ids
};

// Throws UsageError if the dataset has no such user.
History user_history(const data::Dataset& dataset, std::string_view id);
// The history of a row, without checking that the dataset's file is unchanged (Dataset::check_unchanged()).
History user_history(const data::Dataset& dataset, int64_t row);

// The history from request.items, actions, timestamps and context. Throws UsageError if they are
// inconsistent with the dataset or each other.
History given_history(const data::Vocabulary& vocabulary, const Request& request,
                      bool skip_unknown);

// A time in the unit of the dataset: written in this format or, without one, as a number in that unit or
// ISO 8601. Only numbers do where the unit is not known. Throws UsageError.
int64_t read_time(const data::Manifest& manifest, std::string_view text,
                  const data::TimeFormat* format = nullptr);

}  // namespace seqfuse::serving
