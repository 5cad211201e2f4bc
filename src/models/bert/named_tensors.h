// Takes a BERT checkpoint's tensors by name, checks and converts them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/files/tensor_files.h"

namespace seqfuse::models::bert {

// Names are those in the file without "bert."; norms may be called gamma and beta, as in old files. Throws
// DataError as make_weights does.
class NamedTensors {
 public:
  // source: for messages. The tensors must outlive this object.
  NamedTensors(const TensorMap& tensors, at::TensorOptions options, std::string source);

  at::Tensor take(const std::string& name, const std::vector<int64_t>& shape);
  void take_norm(const std::string& name, int64_t size, at::Tensor& weight, at::Tensor& bias);
  void take_linear(const std::string& name, int64_t outputs, int64_t inputs, at::Tensor& weight,
                   at::Tensor& bias);
  // The shape of a tensor, which must exist.
  std::vector<int64_t> shape(const std::string& name) const {
    return find(name)->second.sizes().vec();
  }

  // Throws DataError if a tensor was not taken, except those of heads.
  void expect_all_used() const;

 private:
  TensorMap::const_iterator find(const std::string& name) const;
  at::Tensor converted(const std::string& name, const at::Tensor& given) const;

  const TensorMap& tensors_;
  at::TensorOptions options_;
  std::string source_;
  std::vector<std::string> unused_;
  bool prefixed_ = false;
};

}  // namespace seqfuse::models::bert
