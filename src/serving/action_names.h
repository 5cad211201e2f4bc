// Converts between actions as people write them and their labels in a dataset.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/dataset/dataset.h"

namespace seqfuse::serving {

// The label of an action, given as:
//   classes: its name as in the source, or another spelling of the same number ("4" for "4.0"); if
//     no name is a number, also the number of the label.
//   bits: the names of the set bits, joined by "+", or all bits as one integer. An integer always
//     means the latter, even if names are integers.
// Throws UsageError.
int64_t find_action(const data::Manifest& manifest, std::string_view text);

// A label in the form that find_action() reads.
std::string action_text(const data::Manifest& manifest, int64_t label);

}  // namespace seqfuse::serving
