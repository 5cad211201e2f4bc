// seqfuse bench decode --stream: a long text through a cache of fixed size.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/decoding_model.h"

namespace seqfuse::cli {

struct StreamFlags {
  int64_t tokens = 0;    // to feed in all
  std::string ids_file;  // the text, which is repeated
  bool json = false;     // instead of a table
};

// Prints time, loss and memory of each part of the text, and how far parts are from each other.
void print_stream(const DecodingFlags& decoding, const StreamFlags& flags,
                  const std::function<bool()>& interrupted);

}  // namespace seqfuse::cli
