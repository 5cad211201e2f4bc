// One parameter and its state, as the updates on the CPU and on a GPU see it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "training/optimizer/optimizer.h"
#include "training/optimizer/update_rules.h"

namespace seqfuse::training {

inline constexpr const char* kNormExchange = "exchange of the gradient norm";

struct Optimizer::Entry {
  enum class Kind { adamw, adam, sgd, row_wise_adagrad };

  std::string name;
  at::Tensor weight;
  bool table = false;
  bool shard = false;  // rows of a table, others of which are in other processes
  Kind kind = Kind::adamw;
  at::Tensor exp_avg, exp_avg_sq;  // adam: the weight's shape
  at::Tensor sum_sq;               // row_wise_adagrad: [rows]
  at::Tensor average;              // of the weights, if asked for: the weight's shape

  int64_t row_length() const { return weight.dim() == 0 ? 1 : weight.size(-1); }
  bool is_adam() const { return kind == Kind::adamw || kind == Kind::adam; }

  // On the CPU, with a gradient of T, the weight's dtype.
  template <class T>
  void update_dense(const UpdateRule& rule, const at::Tensor& gradient);
  template <class T>
  void update_sparse(const UpdateRule& rule, const at::Tensor& gradient);

 private:
  // n consecutive elements; begin: of the weight and its state, row: for sum_sq.
  template <class T>
  void update(const UpdateRule& rule, const T* gradient, int64_t begin, int64_t n, int64_t row);
};

}  // namespace seqfuse::training
