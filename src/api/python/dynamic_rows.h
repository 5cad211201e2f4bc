// torch.classes.seqfuse.DynamicRows: a table of ids that are not known in advance.
#pragma once

#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "embeddings/dynamic/dynamic_rows.h"

namespace seqfuse::api {

// The rows of a batch's ids, for rows() and update().
struct DynamicBatch : torch::CustomClassHolder {
  embeddings::DynamicRows::Batch batch;
};

// Methods throw ValueError for what is wrong with the arguments, and RuntimeError for ids without a
// place and for memory that does not suffice.
class DynamicRows : public torch::CustomClassHolder {
 public:
  using Numbers = c10::Dict<std::string, int64_t>;
  using Tensors = c10::Dict<std::string, at::Tensor>;
  using Batch = c10::intrusive_ptr<DynamicBatch>;

  // Names of the members of DynamicRowsOptions and RowInit. words: name, optimizer, score, init.
  DynamicRows(const Numbers& integers, const c10::Dict<std::string, double>& reals,
              const c10::Dict<std::string, std::string>& words, at::Device device);

  Batch fetch(const at::Tensor& ids, const std::optional<at::Tensor>& scores,
              std::optional<int64_t> step);
  at::Tensor look_up(const at::Tensor& ids);  // rows, for evaluation
  void prefetch(const at::Tensor& ids);
  at::Tensor rows(const Batch& batch) const;
  // t: the number of this update, from 1.
  void update(const Batch& batch, const at::Tensor& gradients, double learning_rate, double beta1,
              double beta2, double epsilon, int64_t t);
  void erase(const at::Tensor& ids);
  void clear() { rows_.clear(); }
  void check_failures();

  // bool [n]: the ids that have a row. Changes nothing.
  at::Tensor contains(const at::Tensor& ids) const;

  // size, capacity (allocated), bytes, host_bytes, failed, evicted, early, unknown.
  Numbers counts() const;
  // Ids, scores, and how many more there were.
  std::tuple<at::Tensor, at::Tensor, int64_t> take_evicted();
  // ids, rows, scores, touched, slots, table; the same with counted_ in front; shared_row.
  // since: only rows that fetches from this number on had (table[1]: the fetches so far).
  Tensors contents(int64_t since) const;
  void load(const Tensors& contents);
  // Contents of a moment, copied in pieces (DynamicRows::start_snapshot). finish_snapshot: contents(0) without
  // rows, which are by_slot[slots], but late_rows where late says so.
  void start_snapshot() { rows_.start_snapshot(); }
  bool copy_snapshot(int64_t slots) { return rows_.copy_snapshot(slots); }
  Tensors finish_snapshot();
  at::Tensor shared_row() const { return rows_.shared_row(); }

 private:
  embeddings::DynamicRows rows_;
};

}  // namespace seqfuse::api
