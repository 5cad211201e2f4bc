// torch tensors by name, in safetensors files: the one place where dtypes of both meet.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace seqfuse::models {

using TensorMap = std::map<std::string, torch::Tensor>;

// The dtype that a safetensors file calls so. Throws Error naming the tensor if torch has none.
at::ScalarType torch_dtype(const std::string& tensor, std::string_view dtype);

// Throws IoError, or Error for a dtype that safetensors files do not support.
void save_tensors(const std::filesystem::path& file, const TensorMap& tensors,
                  const std::map<std::string, std::string>& metadata = {});

// On the CPU. Reads each byte of the file once, in order. hash: if given, becomes hash_file(file). Throws
// DataError naming the file, or IoError.
TensorMap load_tensors(const std::filesystem::path& file, std::string* hash = nullptr);

}  // namespace seqfuse::models
