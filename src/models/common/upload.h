// Integers of a batch on their way to the model's device.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace seqfuse::models {

// Collects vectors and sends them as one piece: to a GPU by one copy from pinned memory, on a
// stream of its own, so that it overlaps with the step before. The current stream waits for it; the
// host does not.
class Upload {
 public:
  explicit Upload(at::Device device) : device_(device) {}

  // tensor becomes int64 [values.size()] on the device when send() is called. Both must live until
  // then.
  void add(const std::vector<int64_t>& values, at::Tensor& tensor);
  // The piece, of which the tensors are slices.
  at::Tensor send();

 private:
  at::Device device_;
  std::vector<std::pair<const std::vector<int64_t>*, at::Tensor*>> parts_;
};

}  // namespace seqfuse::models
