// The answers to a block of requests as bytes, so that an interrupted batch can go on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serving/batch/batch_recommender.h"

namespace seqfuse::serving {

// key: one line that identifies what the answers depend on.
std::string to_bytes(const AnsweredBlock& block, std::string_view key);

// Nothing if the bytes are damaged or cut off, or have another key.
std::optional<AnsweredBlock> from_bytes(std::string_view bytes, std::string_view key);

}  // namespace seqfuse::serving
