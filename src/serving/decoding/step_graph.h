// Decoding steps on a GPU as one CUDA graph: from the ids on the device to the next ids, with one launch by
// the host a token.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kv_cache/cache.h"
#include "models/gpt_neox/model.h"
#include "models/gpt_neox/step_options.h"
#include "serving/decoding/device_sampling.h"

namespace seqfuse::serving {

class StepGraph {
 public:
  // For a model and a cache that GpuStep takes; both must outlive this. Without options.graph every step
  // is enqueued by the host, kernel by kernel.
  StepGraph(const models::gpt_neox::Model& model, kv_cache::Cache& cache, DeviceSampling sampling,
            const models::gpt_neox::StepOptions& options = {});
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Adds ids[row] to every text and picks the next ids; an inactive row does not change, and what is
  // picked for it means nothing. Throws Error if a full cache has no slot left. Copies ids to the
  // device only where they are not those just picked there.
  void run(const std::vector<int64_t>& ids, const std::vector<bool>& active);
  // The same, with the ids that the last step picks and the rows that are active in it: waits for nothing,
  // so that the GPU goes on while the host looks at what it picked before.
  void run_on();

  const at::Tensor& logits() const;  // T [rows, V], of the last step
  // Waits for the last step, or with `back` 1 for the one before it. Negative where a logit was NaN
  // (ops::marked_nan).
  const std::vector<int64_t>& picked(int64_t back = 0) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace seqfuse::serving
