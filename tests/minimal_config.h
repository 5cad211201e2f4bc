// All required parameters, as gin lines 1 to 10; tests add lines after them.
#pragma once

#include <string>

#include "base/error.h"
#include "config/load.h"

namespace seqfuse::config {

inline const std::string kMinimalConfig =
    "TrainerArgs.train_batch_size = 4\n"
    "TrainerArgs.eval_batch_size = 4\n"
    "DatasetArgs.dataset_name = 'ml-1m'\n"
    "DatasetArgs.max_history_seqlen = 20\n"
    "NetworkArgs.num_layers = 1\n"
    "NetworkArgs.hidden_size = 8\n"
    "NetworkArgs.num_attention_heads = 2\n"
    "NetworkArgs.kv_channels = 4\n"
    "OptimizerArgs.optimizer_str = 'adam'\n"
    "OptimizerArgs.learning_rate = 1e-3\n";

// The error message for t.gin with these lines after the minimal ones, or "no error".
inline std::string error_of(const std::string& lines,
                            const std::vector<std::string>& overrides = {}) {
  try {
    load_config_text("t.gin", kMinimalConfig + lines, overrides);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace seqfuse::config
