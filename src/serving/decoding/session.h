// A batch of texts that grow token by token under one cache rule.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kv_cache/cache.h"
#include "models/gpt_neox/model.h"
#include "serving/decoding/step_graph.h"

namespace seqfuse::serving {

// Tokens of a prompt to read between two checks for an interruption.
inline constexpr int64_t kPromptPass = 512;

class Session {
 public:
  // The model must outlive the session. rows: texts, all empty at first. options: of steps on a GPU that
  // models/gpt_neox/gpu_step.h takes.
  Session(const models::gpt_neox::Model& model, const kv_cache::Rule& rule, int64_t rows,
          const models::gpt_neox::StepOptions& options = {});
  Session(const Session&) = delete;  // a graph refers to the cache
  Session& operator=(const Session&) = delete;

  int64_t rows() const { return rows_; }
  const kv_cache::Rule& rule() const { return rule_; }
  const models::gpt_neox::Model& model() const { return model_; }

  // Adds ids to one text, several per pass, and returns the logits [V] after the last one; with
  // `all`, after each, [n, V] (pass only a few ids at a time). Throws DataError if there are no ids
  // or one is not in the vocabulary, Error if a full cache has too few slots left.
  at::Tensor extend(int64_t row, std::span<const int64_t> ids, bool all = false);

  // Adds one id to every row and returns the logits [rows, V], which hold until the next step. Inactive
  // rows do not change, and their logits are meaningless.
  at::Tensor step(const std::vector<int64_t>& ids, const std::vector<bool>& active);

  // Steps go from ids to the next ids on a GPU (step_graph.h). Otherwise the host picks from the logits.
  bool picks_on_device() const { return picks_on_device_; }
  // Before the first step, with picks_on_device(): how tokens are picked; otherwise the best. The texts
  // are `before` so far, the first of them number first_text, each with `drawn` tokens drawn; what
  // extend() and copy() change later does not count for the penalty and the draws.
  void sample_on_device(const SamplingOptions& options,
                        const std::vector<std::vector<int64_t>>& before, uint64_t first_text,
                        uint64_t drawn);
  // One more step, which adds the ids that the last one picks to the rows that were active in it. Waits for
  // nothing: the GPU goes on while the host looks at picked(1).
  void step_on();
  // The next id of every row after the last step, or with `back` 1 after the one before, picked on the
  // device. Throws Error if a logit of an active row was NaN.
  std::vector<int64_t> picked(int64_t back = 0) const;

  // The text `to` becomes a copy of the text `from`, with what is cached of it.
  void copy(int64_t from, int64_t to);

 private:
  void check_ids(std::span<const int64_t> ids) const;  // against the vocabulary
  at::Tensor on_device(std::span<const int64_t> ids) const;
  at::Tensor recompute(int64_t row, int64_t id);
  void make_graph(DeviceSampling sampling);

  const models::gpt_neox::Model& model_;
  kv_cache::Rule rule_;
  int64_t rows_;
  std::optional<kv_cache::Cache> cache_;
  std::vector<std::vector<int64_t>> seen_;  // recompute rule only: each row's visible ids
  models::gpt_neox::StepOptions options_;
  bool picks_on_device_;
  std::unique_ptr<StepGraph> graph_;  // made for the first step
  std::vector<bool> active_;          // in the last step
};

}  // namespace seqfuse::serving
