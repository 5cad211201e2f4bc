// Measures how well a model predicts a text, on the code path of generation.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "serving/decoding/session.h"

namespace seqfuse::serving {

// Adds the ids to row 0 of an empty session of one row, tokens_per_pass at a time (1: as decoding
// does), and returns -log of the probability of each id but the first, in order. In float64 from the
// model's logits. progress: called before each pass with the number of losses so far, false stops.
// Throws DataError: fewer than two ids.
std::vector<double> token_losses(Session& session, std::span<const int64_t> ids,
                                 int64_t tokens_per_pass = 1,
                                 const std::function<bool(int64_t)>& progress = {});

}  // namespace seqfuse::serving
