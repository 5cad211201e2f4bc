// Texts that continue prompts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "serving/decoding/sampling.h"
#include "serving/decoding/session.h"

namespace seqfuse::serving {

enum class Finish {
  length,     // max_new_tokens are there
  eos,        // the model ended the text
  stopped,    // on_token said so
  cache_full  // a full cache has no room for another token
};
const char* name_of(Finish finish);

struct GenerateOptions {
  int64_t max_new_tokens = 0;    // at least 1
  std::vector<int64_t> eos_ids;  // end a text; the id itself is not part of it
  SamplingOptions sampling;
  // Called with each new token, row by row; false: the text ends with this token. May be empty.
  std::function<bool(int64_t row, int64_t id)> on_token;
  std::function<bool()> interrupted;  // asked before each step; true: all texts end. May be empty.
};

struct Generated {
  std::vector<int64_t> ids;  // without the prompt
  Finish finish = Finish::stopped;
};

// session: new, with a row for each prompt. first_text: the number of the first prompt among all of
// a call, which draws depend on. Texts of different lengths end on their own; the batch goes on until
// the last has ended.
std::vector<Generated> generate(Session& session, const std::vector<std::vector<int64_t>>& prompts,
                                const GenerateOptions& options, uint64_t first_text = 0);

}  // namespace seqfuse::serving
