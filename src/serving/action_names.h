// Actions as people write them, and their labels in a data set.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/dataset/dataset.h"

namespace seqfuse::serving {

// The label of an action.
//   classes: its name as in the source, or another spelling of the same number ("4" for "4.0");
//     where no name is a number, the number of the label too.
//   bits: the names of those that are set, joined by "+", or all of them as one integer. An integer
//     is always taken for the latter, also where names are integers.
// Throws UsageError.
int64_t find_action(const data::Manifest& manifest, std::string_view text);

// A label as find_action() reads it.
std::string action_text(const data::Manifest& manifest, int64_t label);

}  // namespace seqfuse::serving
