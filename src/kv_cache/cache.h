// Keys and values of the tokens that a batch of sequences still sees, and attention over them.
//
// One forward pass of a model is: begin() with the rows and the number of tokens, attend() once a
// layer, end(). A pass is either one token of every row (decoding) or several of one row (prefill);
// a prompt gives the same however it is cut into passes, to rounding: each of its tokens sees what
// it would see if it came alone.
//
// On a GPU, shapes of a decoding pass do not depend on how far the sequences are: slots never move,
// and what is seen, angles and slots come from the positions on the device. On the CPU a decoding pass
// is one operator (ops/kernels/attention/decode_attention.h), but for float64, which tests compute in.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "kv_cache/cpu_step.h"
#include "kv_cache/rotary.h"
#include "kv_cache/rule.h"

namespace seqfuse::kv_cache {

struct Shape {
  int64_t layers = 0, heads = 0, head_dim = 0;
};

// Bytes of a cache of so many rows.
int64_t cache_bytes(const Rule& rule, const Shape& shape, int64_t rows, at::ScalarType dtype);

class Cache {
 public:
  // rows: sequences, all empty. rule: any but recompute, which has no cache.
  Cache(const Rule& rule, const Shape& shape, const Rotary& rotary, int64_t rows,
        at::TensorOptions options);

  const Rule& rule() const { return rule_; }
  int64_t rows() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t row) const { return lengths_[row]; }  // tokens so far, seen or not

  // The next token of every row. active[row] false: the row is computed, but stays as it was.
  // Throws Error where a full cache has no slot left.
  void begin_step(const std::vector<bool>& active);
  // The next `tokens` tokens of one row.
  void begin_prefill(int64_t row, int64_t tokens);

  // q, k, v [rows, heads, tokens, head_dim] of the pass, not rotated, rows = 1 in a prefill.
  // Returns softmax(q k^T / sqrt(head_dim)) v, of the same shape; keys and values are kept.
  // Softmax in float32 (float64 where that is the dtype).
  at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

  void end();  // the pass is over: its tokens count

  void clear(int64_t row);          // the row is empty again
  int64_t longest_prefill() const;  // tokens of a pass that keep its scores below 64 MB

 private:
  struct Pass {
    int64_t row = -1;  // of a prefill; -1: a step
    int64_t tokens = 0;
    int64_t used = 0;        // slots that hold something, of any row
    bool causal = false;     // a prefill that sees all and nothing but its own tokens
    bool shortened = false;  // some query stands nearer to the first tokens than it is
    std::vector<bool> active;
    std::optional<CpuStep> on_cpu;  // of a step by the operator; nothing below is set then
    at::Tensor slots;               // int64: of a step [rows], of a prefill [kept tokens]
    int64_t firsts = 0;             // prefill: so many first tokens of the pass are kept, and
    int64_t newest = 0;             // those from here on; the others lose their slot in this pass
    at::Tensor hidden;              // bool, true: not seen; broadcasts to the scores
    Rotary::Angles angles;          // of keys and of queries towards the newest
    Rotary::Angles start_angles;    // of queries towards the first tokens
  };

  at::Tensor step(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  at::Tensor prefill(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  at::Tensor weighted_values(const at::Tensor& scores, const at::Tensor& values) const;
  void set_angles(const at::Tensor& tokens);
  at::Tensor positions(const at::Tensor& tokens) const;  // Rule::position of each

  bool steps_on_cpu() const { return lengths_on_device_.is_cpu() && dtype_ != at::kDouble; }

  Rule rule_;
  Shape shape_;
  Rotary rotary_;
  at::ScalarType dtype_;
  std::vector<at::Tensor> keys_, values_;  // a layer each: [rows, heads, slots, head_dim]
  at::Tensor lengths_on_device_;           // int64 [rows]
  std::vector<int64_t> lengths_;
  Pass pass_;
};

}  // namespace seqfuse::kv_cache
