// The tensors of a checkpoint's safetensors, by name.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "io/safetensors.h"
#include "models/files/tensor_map.h"

namespace seqfuse::models {

class TensorFiles {
 public:
  // directory: with model.safetensors, or with several files and their index. Throws as
  // io::SafetensorsModel does.
  explicit TensorFiles(const std::filesystem::path& directory);

  // Views of the mapped files, without copies; never write to them. Valid for the lifetime of this
  // object.
  TensorMap tensors() const;
  // The dtype of the first tensor whose name ends so; float32 if there is none or it is no float.
  at::ScalarType dtype_of(std::string_view ending) const;
  // model.safetensors, or its index: for messages.
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  io::SafetensorsModel files_;
};

// Works in blocks, so that a large tensor is not copied.
bool all_finite(const at::Tensor& tensor);

}  // namespace seqfuse::models
