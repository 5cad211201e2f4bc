// seqfuse bench decode --ladder: what each part of a decoding step on a GPU brings.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/decoding_model.h"

namespace seqfuse::cli {

struct LadderFlags {
  int64_t length = 1024, batch = 1;  // tokens of a text before decoding, and texts
  int64_t tokens = 32;               // timed tokens of a text
  // Perplexity beside each rung: of a model that predicts a text. Empty: none.
  std::string text_model, ids_file;
  bool json = false;  // instead of a table
};

// Prints the rungs. Throws UsageError where a step cannot be taken apart, as on a CPU.
void print_ladder(const DecodingFlags& decoding, const LadderFlags& flags,
                  const std::function<bool()>& interrupted);

}  // namespace seqfuse::cli
