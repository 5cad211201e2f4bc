// Torch tensors by name, and the safetensors files that hold them.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>

namespace seqfuse::training {

using TensorMap = std::map<std::string, torch::Tensor>;

// Throws IoError; Error for a dtype that such files do not have.
void save_tensors(const std::filesystem::path& file, const TensorMap& tensors,
                  const std::map<std::string, std::string>& metadata = {});

// Copies, on the CPU. Throws DataError naming the file.
TensorMap load_tensors(const std::filesystem::path& file);

}  // namespace seqfuse::training
