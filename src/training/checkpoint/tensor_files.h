// Reads and writes torch tensors by name in safetensors files.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>

namespace seqfuse::training {

using TensorMap = std::map<std::string, torch::Tensor>;

// Throws IoError, or Error for a dtype that safetensors files do not support.
void save_tensors(const std::filesystem::path& file, const TensorMap& tensors,
                  const std::map<std::string, std::string>& metadata = {});

// Returns copies on the CPU. Throws DataError naming the file.
TensorMap load_tensors(const std::filesystem::path& file);

}  // namespace seqfuse::training
