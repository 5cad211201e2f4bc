// Checkpoints: RUN/checkpoints/step_N/{dense.safetensors, tables/NAME.safetensors,
// optimizer.safetensors, state.json}. Written to a temporary name, flushed, renamed; every file's
// hash is in state.json. docs/checkpoints.md describes the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "embeddings/table_contents.h"
#include "models/files/tensor_map.h"

namespace seqfuse::training {

using models::load_tensors;
using models::save_tensors;
using models::TensorMap;

// By name: "item", "action", "user_id", ...
using TableMap = std::map<std::string, embeddings::TableContents>;

struct Checkpoint {
  int64_t step = 0;
  TensorMap dense;       // weights that are not embedding tables
  TableMap tables;       // one file each, with the rows' optimiser state
  TensorMap optimizer;   // of dense weights: "NAME.exp_avg", ...
  nlohmann::json state;  // model spec, epoch, position in it, seed, best metric, schedule, ...
};

// Keeps the newest `keep`; removes older ones only after the new one is in place. A failure leaves
// all older checkpoints intact and throws IoError.
void save_checkpoint(const std::filesystem::path& run_directory, const Checkpoint& checkpoint,
                     int64_t keep);

// Removes what a killed process was still writing, removing or replacing. Saving does so too.
void remove_half_written(const std::filesystem::path& run_directory);

// Checks hashes; a flipped byte is a DataError that names the file. Also reads format 1.
Checkpoint load_checkpoint(const std::filesystem::path& checkpoint_directory);

// The complete checkpoint (one with state.json) of the highest step, or nothing.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run_directory);

}  // namespace seqfuse::training
