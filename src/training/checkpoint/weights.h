// Between a module's parameters and a checkpoint: parameters whose names begin with "tables." are
// embedding tables, "tables.NAME" or "tables.NAME.weight" of table NAME; everything else is dense.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string_view>

#include "training/checkpoint/checkpoint.h"

namespace seqfuse::training {

inline constexpr std::string_view kTablePrefix = "tables.";

// The module's parameters and buffers by name: shared storage.
TensorMap named_weights(const torch::nn::Module& module);

// Fills checkpoint.dense and checkpoint.tables with the module's parameters and buffers (shared
// storage: save before the next step).
void collect_weights(const torch::nn::Module& module, Checkpoint& checkpoint);

// Copies weights into the module. Every weight must be there, with the module's shape, and no
// other: else DataError naming the weight, the shape given and the shape expected. dtypes are
// converted.
void load_weights(torch::nn::Module& module, const Checkpoint& checkpoint);

}  // namespace seqfuse::training
