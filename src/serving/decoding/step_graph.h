// Decoding steps as one CUDA graph: from the ids on the device to the next ids, with one launch by the
// host a token.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kv_cache/cache.h"
#include "models/gpt_neox/model.h"
#include "serving/decoding/device_sampling.h"

namespace seqfuse::serving {

class StepGraph {
 public:
  // For a model and a cache that GpuStep takes; both must outlive this.
  StepGraph(const models::gpt_neox::Model& model, kv_cache::Cache& cache, DeviceSampling sampling);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Adds ids[row] to every text and picks the next ids; an inactive row does not change, and what is
  // picked for it means nothing. Throws Error if a full cache has no slot left. Copies ids to the
  // device only where they are not those just picked there.
  void run(const std::vector<int64_t>& ids, const std::vector<bool>& active);

  const at::Tensor& logits() const;            // T [rows, V], of the last step
  const std::vector<int64_t>& picked() const;  // waits for the last step; -1: a logit was NaN

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace seqfuse::serving
