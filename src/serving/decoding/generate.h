// Generates continuations of prompts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "serving/decoding/sampling.h"
#include "serving/decoding/session.h"

namespace seqfuse::serving {

enum class Finish {
  length,      // max_new_tokens are there
  eos,         // the model ended the text
  stop,        // on_token said so
  cache_full,  // a full cache has no room for another token
  interrupted
};
const char* name_of(Finish finish);

struct Generated {
  std::vector<int64_t> ids;  // without the prompt
  Finish finish = Finish::interrupted;
};

struct GenerateOptions {
  int64_t max_new_tokens = 0;    // at least 1
  std::vector<int64_t> eos_ids;  // end a text; not part of it
  SamplingOptions sampling;
  // Called with each new token, row by row; return false to end the text after this token. May be
  // empty.
  std::function<bool(int64_t row, int64_t id)> on_token;
  // Called once for each text, when it has ended. May be empty.
  std::function<void(int64_t row, const Generated&)> on_end;
  // Asked before each step and each 512 tokens of a prompt; true: all texts end. May be empty.
  std::function<bool()> interrupted;
};

// session: new, with one row per prompt. first_text: number of the first prompt among all those of
// a command, for the random draws. Each text ends on its own; the batch runs until the last one
// ends.
std::vector<Generated> generate(Session& session, const std::vector<std::vector<int64_t>>& prompts,
                                const GenerateOptions& options, uint64_t first_text = 0);

}  // namespace seqfuse::serving
