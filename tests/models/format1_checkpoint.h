// Checkpoints in the layout of format 1, which kept the state of tables in optimizer.safetensors.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "base/hash.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::training {

// tables/NAME.safetensors contains only the rows, in order of ids 0..n - 1; optimizer.safetensors
// also contains the tables' state, "tables.NAME.STATE".
inline void save_as_format1(const std::filesystem::path& directory, const Checkpoint& checkpoint) {
  std::filesystem::create_directories(directory / "tables");
  nlohmann::json files = nlohmann::json::object();
  const auto save = [&](const std::string& name, const TensorMap& tensors) {
    save_tensors(directory / name, tensors);
    files[name] = {{"bytes", std::filesystem::file_size(directory / name)},
                   {"hash", hash_file(directory / name)}};
  };
  TensorMap optimizer = checkpoint.optimizer;
  for (const auto& [name, table] : checkpoint.tables) {
    save("tables/" + name + ".safetensors", {{name, table.rows}});
    for (const auto& [state, tensor] : table.state) {
      optimizer["tables." + name + "." + state] = tensor;
    }
  }
  save("dense.safetensors", checkpoint.dense);
  save("optimizer.safetensors", optimizer);
  nlohmann::json state = {
      {"format", 1}, {"step", checkpoint.step}, {"files", files}, {"state", checkpoint.state}};
  state["checksum"] = hash_text(state.dump());
  write_file_atomically(directory / "state.json", state.dump(2) + "\n");
}

}  // namespace seqfuse::training
