// The operators of a decoding step on a GPU, as tensors: enqueued on the current stream, with nothing
// allocated and no host work, so that a CUDA graph can hold a whole step.
//
// T: float16 or bfloat16. All tensors are contiguous, 16-byte aligned and on one GPU. Throws
// c10::ValueError for other tensors, and Error in builds without CUDA. The headers of ops/kernels/decode
// have the definitions. early: on SM 9.0 a kernel starts while the one before it in the stream runs.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "ops/kernels/decode/step_attention.h"
#include "ops/kernels/decode/step_ends.h"
#include "ops/kernels/decode/step_linear.h"
#include "ops/kernels/decode/step_norm.h"
#include "ops/kernels/norm/residual_norm.h"

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

struct StepNorm {
  at::Tensor weight, bias;  // T [size]
  at::Tensor y;             // T [rows, size]
};

// One layer norm of x or two, prepared.
class StepNormLaunch {
 public:
  // x: T [rows, size].
  StepNormLaunch(const at::Tensor& x, std::vector<StepNorm> norms, double eps, bool early = true);
  void enqueue() const;

 private:
  at::Tensor x_;
  std::vector<StepNorm> norms_;
  StepNormParams params_;
};

// (x + a) + hidden, which becomes hidden, and one layer norm of it or two (ops/kernels/norm/
// residual_norm.h), prepared. Never starts early.
class StepSumNormLaunch {
 public:
  // x, a, hidden: T [rows, size].
  StepSumNormLaunch(const at::Tensor& x, const at::Tensor& a, const at::Tensor& hidden,
                    std::vector<StepNorm> norms, double eps);
  void enqueue() const;

 private:
  std::vector<at::Tensor> terms_;
  std::vector<StepNorm> norms_;
  ResidualNormParams params_;
};

// A launch of one linear layer or two, prepared: the checks are done and the memory is there.
class StepLinearLaunch {
 public:
  // residual: added, as StepLinearParams says; undefined: none.
  StepLinearLaunch(std::vector<StepOperand> operands, const at::Tensor& residual,
                   bool early = true);

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
                      const StepRule& rule, const at::Tensor& workspace = {}, bool early = true);
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
                const at::Tensor& angles, bool early = true);

// logits: T [rows, vocabulary]. Writes ids; lengths grow by active: all int64 [rows]. recent: int64
// [2, rows], the ids of the last two steps: those of step n in row n % 2; steps: int64 [rows], n, which
// grows by 1.
void end_step(const at::Tensor& logits, const at::Tensor& active, const at::Tensor& ids,
              const at::Tensor& lengths, const at::Tensor& recent, const at::Tensor& steps,
              bool early = true);

// True if a GPU has the shared memory for attention with this head_dim. False without CUDA.
bool step_attention_fits(int64_t head_dim, at::Device device);

// texts, counts: int64 [rows]. Writes points, float64 [rows]. On a CPU too.
void draw_points(const at::Tensor& texts, const at::Tensor& counts, uint64_t seed,
                 const at::Tensor& points);

}  // namespace seqfuse::ops
