// The operators of a decoding step on a GPU, as tensors: enqueued on the current stream, with nothing
// allocated and no host work, so that a CUDA graph can hold a whole step.
//
// T: float16 or bfloat16. All tensors are contiguous, 16-byte aligned and on one GPU. Throws
// c10::ValueError for other tensors, and Error in builds without CUDA. The headers of ops/kernels/decode
// have the definitions.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "ops/kernels/decode/step_attention.h"
#include "ops/kernels/decode/step_ends.h"
#include "ops/kernels/decode/step_linear.h"
#include "ops/kernels/decode/step_norm.h"

namespace seqfuse::ops {

inline constexpr int64_t kMaxStepRows = 16;

// One of the linear layers of a launch.
struct StepOperand {
  at::Tensor weight;  // T or int8 [n, k]
  at::Tensor scales;  // of int8: float32 [n]
  at::Tensor bias;    // T [n], or undefined
  at::Tensor x;       // T [rows, k]
  LinearActivation activation = LinearActivation::none;
  at::Tensor y;  // T [rows, n]; undefined in the second of two that are added
};

// One layer norm of x or two, prepared.
class StepNormLaunch {
 public:
  struct Norm {
    at::Tensor weight, bias;  // T [size]
    at::Tensor y;             // T [rows, size]
  };
  // x: T [rows, size].
  StepNormLaunch(const at::Tensor& x, std::vector<Norm> norms, double eps);
  void enqueue() const;

 private:
  at::Tensor x_;
  std::vector<Norm> norms_;
  StepNormParams params_;
};

// A launch of one linear layer or two, prepared: the checks are done and the memory is there.
class StepLinearLaunch {
 public:
  // residual: added, as StepLinearParams says; undefined: none.
  StepLinearLaunch(std::vector<StepOperand> operands, const at::Tensor& residual);

  void enqueue() const;

 private:
  std::vector<StepOperand> operands_;
  at::Tensor residual_;
  StepLinearParams params_;
};

// Attention of a layer over its cache, prepared.
class StepAttentionLaunch {
 public:
  // qkv, out: T [rows, heads * 3 * head_dim] and [rows, heads * head_dim]; keys, values: T [rows, heads,
  // slots, head_dim]; lengths: int64 [rows]; angles: T [rows, 2, 2, rotary_dims / 2].
  StepAttentionLaunch(const at::Tensor& qkv, const at::Tensor& keys, const at::Tensor& values,
                      const at::Tensor& lengths, const at::Tensor& angles, const at::Tensor& out,
                      const StepRule& rule, const at::Tensor& workspace = {});
  const at::Tensor& workspace() const { return workspace_; }
  void enqueue() const;

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor workspace_;
  StepAttentionParams params_;
};

// embedding: T [vocabulary, hidden_size]; ids, lengths: int64 [rows]; frequencies: float64
// [rotary_dims / 2]. Writes hidden, T [rows, hidden_size], and angles as above.
void begin_step(const at::Tensor& embedding, const at::Tensor& ids, const at::Tensor& lengths,
                const at::Tensor& frequencies, const StepRule& rule, const at::Tensor& hidden,
                const at::Tensor& angles);

// logits: T [rows, vocabulary]. Writes ids; lengths grow by active: all int64 [rows].
void end_step(const at::Tensor& logits, const at::Tensor& active, const at::Tensor& ids,
              const at::Tensor& lengths);

// Whether a GPU has the shared memory for attention with this head_dim. False without CUDA.
bool step_attention_fits(int64_t head_dim, at::Device device);

// texts, counts: int64 [rows]. Writes points, float64 [rows]. On a CPU too.
void draw_points(const at::Tensor& texts, const at::Tensor& counts, uint64_t seed,
                 const at::Tensor& points);

}  // namespace seqfuse::ops
