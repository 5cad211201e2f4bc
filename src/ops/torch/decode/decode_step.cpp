#include "ops/torch/decode/decode_step.h"

#include <tuple>
#include <utility>

#include "base/error.h"
#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"

namespace seqfuse::ops {
namespace {

constexpr const char* kOp = "decode_step";

#ifdef SEQFUSE_HAS_CUDA
#define SEQFUSE_ENQUEUE(tensor, launch, ...)                                \
  do {                                                                      \
    const DeviceGuard guard(tensor);                                        \
    C10_CUDA_CHECK(launch(__VA_ARGS__, c10::cuda::getCurrentCUDAStream())); \
  } while (false)
#else
#define SEQFUSE_ENQUEUE(tensor, launch, ...)                                    \
  do {                                                                          \
    [[maybe_unused]] const auto arguments = std::make_tuple(__VA_ARGS__);       \
    throw_error<UsageError>("decoding steps on a GPU: this build has no CUDA"); \
  } while (false)
#endif

void check_plain(const char* name, const Tensor& tensor) {
  const Arg arg{kOp, name, tensor};
  TORCH_CHECK_VALUE(tensor.is_cuda() && tensor.is_contiguous(), label(arg), " is on ",
                    tensor.device(), " with strides ", tensor.strides(),
                    "; expected a GPU, contiguous");
  TORCH_CHECK_VALUE(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0, label(arg),
                    " is not aligned to 16 bytes");
}

void check_tensor(const char* name, const Tensor& tensor, at::IntArrayRef sizes,
                  at::ScalarType type) {
  check_plain(name, tensor);
  const Arg arg{kOp, name, tensor};
  TORCH_CHECK_VALUE(tensor.scalar_type() == type, label(arg), " is ", tensor.scalar_type(),
                    "; expected ", type);
  check_sizes(arg, sizes, "the sizes of this step");
}

void check_optional(const char* name, const Tensor& tensor, at::IntArrayRef sizes,
                    at::ScalarType type) {
  if (tensor.defined()) check_tensor(name, tensor, sizes, type);
}

at::ScalarType checked_type(const Tensor& x) {
  const auto type = x.scalar_type();
  TORCH_CHECK_VALUE(type == at::kHalf || type == at::kBFloat16, kOp, ": x is ", type,
                    "; expected Half or BFloat16");
  return type;
}

void check_operand(const StepOperand& operand, bool has_result) {
  check_plain("x", operand.x);
  const auto type = checked_type(operand.x);
  const bool int8 = operand.scales.defined();
  check_rank({kOp, "weight", operand.weight}, 2, "[n, k]");
  const int64_t n = operand.weight.size(0), k = operand.weight.size(1), rows = operand.x.size(0);
  TORCH_CHECK_VALUE(rows >= 1 && rows <= kMaxStepRows, kOp, ": ", rows, " rows; expected 1 to ",
                    kMaxStepRows);
  TORCH_CHECK_VALUE(k % (int8 ? 16 : 8) == 0, kOp, ": rows of ", k,
                    " weights; expected a multiple of ", int8 ? 16 : 8);
  TORCH_CHECK_VALUE(n > 0 && k > 0, kOp, ": weight is ", operand.weight.sizes(),
                    "; expected 1 or more of each");
  TORCH_CHECK_VALUE(operand.weight.device() == operand.x.device(), kOp, ": weight is on ",
                    operand.weight.device(), " and x on ", operand.x.device());
  check_tensor("weight", operand.weight, {n, k}, int8 ? at::kChar : type);
  check_optional("scales", operand.scales, {n}, at::kFloat);
  check_optional("bias", operand.bias, {n}, type);
  check_tensor("x", operand.x, {rows, k}, type);
  if (has_result) check_tensor("y", operand.y, {rows, n}, type);
}

// shared, where it is large enough; else a new one.
[[maybe_unused]] Tensor workspace_of(int64_t bytes, const Tensor& like, const Tensor& shared) {
  if (shared.defined() && shared.numel() >= bytes) return shared;
  return at::zeros({bytes}, like.options().dtype(at::kByte));
}

StepRule checked_rule(const StepRule& rule, int64_t slots) {
  TORCH_CHECK_VALUE(rule.start >= 0 && rule.recent >= 0 && rule.prune_every >= 1 &&
                        rule.start + rule.recent + rule.prune_every == slots,
                    kOp, ": a rule of ", rule.start, " + ", rule.recent, " + ", rule.prune_every,
                    " tokens; the cache has ", slots, " slots");
  return rule;
}

// One norm or two of x.
void check_norms(const Tensor& x, const std::vector<StepNorm>& norms) {
  TORCH_CHECK_VALUE(norms.size() == 1 || norms.size() == 2, kOp, ": ", norms.size(),
                    " norms; expected 1 or 2");
  const auto type = checked_type(x);
  check_rank({kOp, "x", x}, 2, "[rows, size]");
  const int64_t rows = x.size(0), size = x.size(1);
  TORCH_CHECK_VALUE(rows > 0 && size > 0 && size % 8 == 0, kOp, ": norms of ", rows, " rows of ",
                    size, " elements; expected 1 or more rows, of a multiple of 8");
  check_plain("x", x);
  for (const StepNorm& norm : norms) {
    check_tensor("norm_weight", norm.weight, {size}, type);
    check_tensor("norm_bias", norm.bias, {size}, type);
    check_tensor("normed", norm.y, {rows, size}, type);
  }
}

}  // namespace

StepNormLaunch::StepNormLaunch(const Tensor& x, std::vector<StepNorm> norms, double eps, bool early)
    : x_(x), norms_(std::move(norms)) {
  check_norms(x, norms_);
  const int64_t rows = x.size(0), size = x.size(1);
  params_ = {.x = x.const_data_ptr(),
             .count = static_cast<int>(norms_.size()),
             .batch = rows,
             .size = size,
             .eps = eps,
             .early = early};
  for (size_t i = 0; i < norms_.size(); ++i) {
    params_.weight[i] = norms_[i].weight.const_data_ptr();
    params_.bias[i] = norms_[i].bias.const_data_ptr();
    params_.y[i] = norms_[i].y.mutable_data_ptr();
  }
}

void StepNormLaunch::enqueue() const {
  SEQFUSE_ENQUEUE(x_, step_norm_cuda, params_, dtype_of(x_));
}

StepSumNormLaunch::StepSumNormLaunch(const Tensor& x, const Tensor& a, const Tensor& hidden,
                                     std::vector<StepNorm> norms, double eps)
    : terms_{x, a, hidden}, norms_(std::move(norms)) {
  check_norms(hidden, norms_);
  check_tensor("x", x, hidden.sizes(), hidden.scalar_type());
  check_tensor("a", a, hidden.sizes(), hidden.scalar_type());
  const int64_t size = hidden.size(1);
  const StepNorm &first = norms_.front(), &second = norms_.back();
  const bool two = norms_.size() == 2;
  params_ = {.x = x.const_data_ptr(),
             .a = a.const_data_ptr(),
             .b = hidden.const_data_ptr(),
             .sum = hidden.mutable_data_ptr(),
             .weight = first.weight.const_data_ptr(),
             .bias = first.bias.const_data_ptr(),
             .y = first.y.mutable_data_ptr(),
             .weight2 = two ? second.weight.const_data_ptr() : nullptr,
             .bias2 = two ? second.bias.const_data_ptr() : nullptr,
             .y2 = two ? second.y.mutable_data_ptr() : nullptr,
             .rows = hidden.size(0),
             .dim = size,
             .x_stride = size,
             .a_stride = size,
             .b_stride = size,
             .eps = eps};
}

void StepSumNormLaunch::enqueue() const {
  SEQFUSE_ENQUEUE(terms_.front(), residual_norm_forward_cuda, params_, dtype_of(terms_.front()));
}

StepLinearLaunch::StepLinearLaunch(std::vector<StepOperand> operands, const Tensor& residual,
                                   bool early)
    : operands_(std::move(operands)), residual_(residual) {
  TORCH_CHECK_VALUE(operands_.size() == 1 || operands_.size() == 2, kOp, ": ", operands_.size(),
                    " linear layers; expected 1 or 2");
  const StepOperand& first = operands_.front();
  const int64_t rows = first.x.size(0);
  for (size_t i = 0; i < operands_.size(); ++i) {
    const StepOperand& operand = operands_[i];
    check_operand(operand, i == 0 || !residual.defined());
    TORCH_CHECK_VALUE(
        operand.x.size(0) == rows && operand.x.scalar_type() == first.x.scalar_type() &&
            operand.scales.defined() == first.scales.defined() &&
            (!residual.defined() || operand.weight.size(0) == first.weight.size(0)),
        kOp, ": two linear layers that differ in rows, dtypes, weights or, added, in outputs");
    params_.linear[i] = {.weight = operand.weight.const_data_ptr(),
                         .scales = static_cast<const float*>(data_or_null(operand.scales)),
                         .bias = data_or_null(operand.bias),
                         .x = operand.x.const_data_ptr(),
                         .activation = operand.activation,
                         .y = operand.y.defined() ? operand.y.mutable_data_ptr() : nullptr,
                         .n = operand.weight.size(0),
                         .k = operand.weight.size(1)};
  }
  if (residual.defined()) {
    check_tensor("residual", residual, first.y.sizes(), first.x.scalar_type());
    params_.residual = residual.const_data_ptr();
  }
  params_.count = static_cast<int>(operands_.size());
  params_.batch = rows;
  params_.early = early;
}

void StepLinearLaunch::enqueue() const {
  SEQFUSE_ENQUEUE(operands_.front().x, step_linear_cuda, params_, dtype_of(operands_.front().x));
}

StepAttentionLaunch::StepAttentionLaunch(const Tensor& qkv, const Tensor& keys,
                                         const Tensor& values, const Tensor& lengths,
                                         const Tensor& angles, const Tensor& out,
                                         const StepRule& rule,
                                         [[maybe_unused]] const Tensor& workspace, bool early)
    : tensors_{qkv, keys, values, lengths, angles, out} {
  const auto type = checked_type(qkv);
  check_rank({kOp, "keys", keys}, 4, "[rows, heads, slots, head_dim]");
  const int64_t rows = keys.size(0), heads = keys.size(1), dim = keys.size(3);
  TORCH_CHECK_VALUE(dim % kStepHeadDimGrain == 0 && dim <= kMaxStepHeadDim, kOp, ": head_dim is ",
                    dim, "; expected a multiple of ", kStepHeadDimGrain, ", at most ",
                    kMaxStepHeadDim);
  check_tensor("keys", keys, keys.sizes(), type);
  check_tensor("values", values, keys.sizes(), type);
  check_tensor("qkv", qkv, {rows, heads * 3 * dim}, type);
  check_tensor("out", out, {rows, heads * dim}, type);
  check_tensor("lengths", lengths, {rows}, at::kLong);
  check_rank({kOp, "angles", angles}, 4, "[rows, 2, 2, rotary_dims / 2]");
  check_tensor("angles", angles, {rows, 2, 2, angles.size(3)}, type);
  params_ = {.qkv = qkv.const_data_ptr(),
             .keys = keys.mutable_data_ptr(),
             .values = values.mutable_data_ptr(),
             .lengths = lengths.const_data_ptr<int64_t>(),
             .angles = angles.const_data_ptr(),
             .out = out.mutable_data_ptr(),
             .batch = rows,
             .heads = heads,
             .head_dim = dim,
             .slots = keys.size(2),
             .rotary_dims = 2 * angles.size(3),
             .rule = checked_rule(rule, keys.size(2)),
             .early = early};
#ifdef SEQFUSE_HAS_CUDA
  workspace_ = workspace_of(step_attention_workspace_bytes(params_), qkv, workspace);
  params_.workspace = workspace_.mutable_data_ptr();
#endif
}

void StepAttentionLaunch::enqueue() const {
  SEQFUSE_ENQUEUE(tensors_.front(), step_attention_cuda, params_, dtype_of(tensors_.front()));
}

void begin_step(const Tensor& embedding, const Tensor& ids, const Tensor& lengths,
                const Tensor& frequencies, const StepRule& rule, const Tensor& hidden,
                const Tensor& angles, bool early) {
  const auto type = checked_type(embedding);
  const int64_t rows = ids.size(0), half = frequencies.size(0);
  check_tensor("embedding", embedding, {embedding.size(0), hidden.size(1)}, type);
  check_tensor("ids", ids, {rows}, at::kLong);
  check_tensor("lengths", lengths, {rows}, at::kLong);
  check_tensor("frequencies", frequencies, {half}, at::kDouble);
  check_tensor("hidden", hidden, {rows, hidden.size(1)}, type);
  check_tensor("angles", angles, {rows, 2, 2, half}, type);
  const BeginStepParams params{.embedding = embedding.const_data_ptr(),
                               .ids = ids.const_data_ptr<int64_t>(),
                               .lengths = lengths.const_data_ptr<int64_t>(),
                               .frequencies = frequencies.const_data_ptr<double>(),
                               .hidden = hidden.mutable_data_ptr(),
                               .angles = angles.mutable_data_ptr(),
                               .batch = rows,
                               .hidden_size = hidden.size(1),
                               .rotary_dims = 2 * half,
                               .rule = rule,
                               .early = early};
  SEQFUSE_ENQUEUE(hidden, begin_step_cuda, params, dtype_of(hidden));
}

void end_step(const Tensor& logits, const Tensor& active, const Tensor& ids, const Tensor& lengths,
              const Tensor& recent, const Tensor& steps, bool early) {
  const int64_t rows = logits.size(0);
  check_tensor("logits", logits, {rows, logits.size(1)}, checked_type(logits));
  for (const auto& [name, tensor] : {std::pair{"active", &active}, std::pair{"ids", &ids},
                                     std::pair{"lengths", &lengths}, std::pair{"steps", &steps}}) {
    check_tensor(name, *tensor, {rows}, at::kLong);
  }
  check_tensor("recent", recent, {2, rows}, at::kLong);
  const EndStepParams params{.logits = logits.const_data_ptr(),
                             .ids = ids.mutable_data_ptr<int64_t>(),
                             .lengths = lengths.mutable_data_ptr<int64_t>(),
                             .active = active.const_data_ptr<int64_t>(),
                             .recent = recent.mutable_data_ptr<int64_t>(),
                             .steps = steps.mutable_data_ptr<int64_t>(),
                             .batch = rows,
                             .vocabulary = logits.size(1),
                             .early = early};
  SEQFUSE_ENQUEUE(logits, end_step_cuda, params, dtype_of(logits));
}

bool step_attention_fits([[maybe_unused]] int64_t head_dim, [[maybe_unused]] at::Device device) {
#ifdef SEQFUSE_HAS_CUDA
  const c10::cuda::CUDAGuard guard(device);
  return step_attention_fits(head_dim);
#else
  return false;
#endif
}

void draw_points(const Tensor& texts, const Tensor& counts, uint64_t seed, const Tensor& points) {
  const int64_t rows = points.size(0);
  for (const auto& [name, tensor] : {std::pair{"texts", &texts}, std::pair{"counts", &counts}}) {
    check_sizes({kOp, name, *tensor}, {rows}, "one for each of points");
    check_int64({kOp, name, *tensor});
    check_on({kOp, name, *tensor}, points.device());
  }
  const DrawParams params{.texts = texts.const_data_ptr<int64_t>(),
                          .counts = counts.const_data_ptr<int64_t>(),
                          .points = points.mutable_data_ptr<double>(),
                          .seed = seed,
                          .batch = rows};
  if (points.is_cpu()) {
    for (int64_t row = 0; row < rows; ++row) params.points[row] = point_of(params, row);
    return;
  }
  SEQFUSE_ENQUEUE(points, draw_cuda, params);
}

#undef SEQFUSE_ENQUEUE

}  // namespace seqfuse::ops
