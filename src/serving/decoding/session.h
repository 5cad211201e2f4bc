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

namespace seqfuse::serving {

// Tokens of a prompt to read between two checks for an interruption.
inline constexpr int64_t kPromptPass = 512;

class Session {
 public:
  // The model must outlive the session. rows: texts, all empty at first.
  Session(const models::gpt_neox::Model& model, const kv_cache::Rule& rule, int64_t rows);

  int64_t rows() const { return rows_; }
  const kv_cache::Rule& rule() const { return rule_; }
  const models::gpt_neox::Model& model() const { return model_; }

  // Adds ids to one text, several per pass, and returns the logits [V] after the last one; with
  // `all`, after each, [n, V] (pass only a few ids at a time). Throws DataError if there are no ids
  // or one is not in the vocabulary, Error if a full cache has too few slots left.
  at::Tensor extend(int64_t row, std::span<const int64_t> ids, bool all = false);

  // Adds one id to every row and returns the logits [rows, V]. Inactive rows do not change, and
  // their logits are meaningless.
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
  std::vector<std::vector<int64_t>> seen_;  // recompute rule only: each row's visible ids
};

}  // namespace seqfuse::serving
