// The keys and values that a batch of sequences still sees, and attention over them.
//
// A forward pass of a model is begin_step() or begin_prefill(), attend() once per layer, end(). A
// pass is one token of every row (decoding) or several tokens of one row (prefill). However a
// prompt is split into passes, the result is the same up to rounding: each token sees what it would
// see on its own.
//
// On a GPU, the shapes of a decoding pass do not depend on the sequences' lengths: slots never move,
// and masks, angles and slots are computed from positions on the device. On the CPU a decoding pass
// is one operator (ops/kernels/attention/decode_attention.h), except in float64, which is for tests.
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

// Bytes of a cache with this many rows.
int64_t cache_bytes(const Rule& rule, const Shape& shape, int64_t rows, at::ScalarType dtype);

class Cache {
 public:
  // rows: sequences, all empty. rule: any but recompute, which needs no cache.
  Cache(const Rule& rule, const Shape& shape, const Rotary& rotary, int64_t rows,
        at::TensorOptions options);

  const Rule& rule() const { return rule_; }
  int64_t rows() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t row) const { return lengths_[row]; }  // tokens so far, visible or not
  const Rotary& rotary() const { return rotary_; }

  // For operators that do a step by themselves (models/gpt_neox/gpu_step.h): [rows, heads, slots,
  // head_dim], and int64 [rows] on the device. They write keys and values, and let lengths grow.
  const at::Tensor& keys(int64_t layer) const { return keys_[layer]; }
  const at::Tensor& values(int64_t layer) const { return values_[layer]; }
  const at::Tensor& lengths_on_device() const { return lengths_on_device_; }
  // Before such a step: throws Error if a full cache has no slot left. After it: counts its tokens.
  void check_room(const std::vector<bool>& active) const;
  void count_step(const std::vector<bool>& active);

  // Begins a pass of one token per row. A row with active[row] false is computed but does not
  // advance. Throws Error if a full cache has no slot left.
  void begin_step(const std::vector<bool>& active);
  // The same with shapes that depend on the rule alone and all that depends on lengths_on_device() on the
  // device, for a CUDA graph: end() changes no lengths then.
  void begin_step_on_device();
  // Begins a pass of `tokens` tokens of one row.
  void begin_prefill(int64_t row, int64_t tokens);

  // q, k, v: [rows, heads, tokens, head_dim] of the pass, before rotation; rows = 1 in a prefill.
  // Returns softmax(q k^T / sqrt(head_dim)) v in that shape and caches keys and values. The softmax
  // is float32 (float64 if that is the dtype).
  at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

  void end();  // commits the pass's tokens

  void clear(int64_t row);              // the row is empty again
  void copy(int64_t from, int64_t to);  // the row `to` holds what `from` holds
  int64_t longest_prefill() const;      // tokens of a pass that keep its scores below 64 MB

 private:
  struct Pass {
    int64_t row = -1;  // the row that a prefill fills; -1: a decoding step
    int64_t tokens = 0;
    int64_t used = 0;        // slots in use, over all rows
    bool causal = false;     // prefill: tokens see all earlier ones of the pass, and only those
    bool shortened = false;  // some distance to the first tokens is shortened
    bool on_device = false;  // lengths grow elsewhere
    std::vector<bool> active;
    std::optional<CpuStep> on_cpu;  // a step by the operator: nothing below is set then
    at::Tensor slots;               // int64: [rows] in a step, [kept tokens] in a prefill
    int64_t firsts = 0;             // prefill: the pass's first `firsts` tokens are kept, and
    int64_t newest = 0;             // those from here on; the others are dropped in this pass
    at::Tensor hidden;              // bool, true: hidden; broadcasts to the scores
    Rotary::Angles angles;          // for keys, and for queries against the newest tokens
    Rotary::Angles start_angles;    // for queries against the first tokens
  };

  at::Tensor step(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  at::Tensor prefill(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  at::Tensor weighted_values(const at::Tensor& scores, const at::Tensor& values) const;
  void see_slots();  // sets slots, hidden and angles of a step
  void set_angles(const at::Tensor& tokens);
  at::Tensor positions(const at::Tensor& tokens) const;  // Rule::position of each

  bool steps_on_cpu() const { return lengths_on_device_.is_cpu() && dtype_ != at::kDouble; }

  Rule rule_;
  Shape shape_;
  Rotary rotary_;
  at::ScalarType dtype_;
  std::vector<at::Tensor> keys_, values_;  // per layer: [rows, heads, slots, head_dim]
  at::Tensor lengths_on_device_;           // int64 [rows]
  std::vector<int64_t> lengths_;
  Pass pass_;
};

}  // namespace seqfuse::kv_cache
