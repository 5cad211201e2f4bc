// A batch of texts that grow token by token through a model, under one cache rule.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kv_cache/cache.h"
#include "models/gpt_neox/model.h"

namespace seqfuse::serving {

class Session {
 public:
  // The model must outlive the session. rows: texts, all empty.
  Session(const models::gpt_neox::Model& model, const kv_cache::Rule& rule, int64_t rows);

  int64_t rows() const { return rows_; }
  const kv_cache::Rule& rule() const { return rule_; }
  const models::gpt_neox::Model& model() const { return model_; }

  // Adds ids to one text, several in a pass, and returns the logits [V] after the last; all:
  // after each, [n, V], in which case give few at a time. Throws DataError: no ids, or an id that is
  // not in the vocabulary; Error where a full cache has too few slots left.
  at::Tensor extend(int64_t row, std::span<const int64_t> ids, bool all = false);

  // Adds one id to every row and returns the logits [rows, V]. Rows that are not active stay as they
  // are, and their logits mean nothing.
  at::Tensor step(const std::vector<int64_t>& ids, const std::vector<bool>& active);

  // The text `to` becomes a copy of the text `from`, with what is cached of it.
  void copy(int64_t from, int64_t to);

 private:
  at::Tensor on_device(std::span<const int64_t> ids) const;  // checked against the vocabulary
  at::Tensor recompute(int64_t row, int64_t id);

  const models::gpt_neox::Model& model_;
  kv_cache::Rule rule_;
  int64_t rows_;
  std::optional<kv_cache::Cache> cache_;
  std::vector<std::vector<int64_t>> seen_;  // of the recompute rule: a row's ids that are seen
};

}  // namespace seqfuse::serving
