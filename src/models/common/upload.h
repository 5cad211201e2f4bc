// Uploads a batch's integers to the model's device.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace seqfuse::models {

// Collects vectors and sends them in one piece: to a GPU by one copy from pinned memory on a
// separate stream, so that it overlaps with the previous step. The current stream waits for it; the
// host does not.
class Upload {
 public:
  explicit Upload(at::Device device) : device_(device) {}

  // On send(), tensor becomes int64 [values.size()] on the device. Both must live until then.
  void add(const std::vector<int64_t>& values, at::Tensor& tensor);
  // The uploaded piece, which the tensors are slices of.
  at::Tensor send();

 private:
  at::Device device_;
  std::vector<std::pair<const std::vector<int64_t>*, at::Tensor*>> parts_;
};

}  // namespace seqfuse::models
