#include "ops/torch/attention/masked_attention.h"

#include <torch/autograd.h>

#include <atomic>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "ops/kernels/attention/masked_attention.h"
#include "ops/kernels/attention/masked_choice.h"
#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"

#ifdef SEQFUSE_HAS_CUDA
#include "ops/kernels/common/device_limits.h"
#endif

namespace seqfuse::ops {
namespace masked_attention_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kOp = "masked_attention";
constexpr const char* kForward = "seqfuse::masked_attention";
constexpr const char* kBackward = "seqfuse::masked_attention_backward";
constexpr size_t kLists = 10, kSizes = 6;

void check_list(const char* op, const char* name, const Tensor& list, at::ScalarType type,
                at::IntArrayRef sizes, at::Device device) {
  const Arg arg{op, name, list};
  check_sizes(arg, sizes, "as the mask's sizes and its other lists say");
  TORCH_CHECK_VALUE(list.scalar_type() == type && list.is_contiguous(), label(arg), " is ",
                    list.scalar_type(), "; expected ", type, ", contiguous");
  TORCH_CHECK_VALUE(list.device() == device, op, ": the mask is on ", list.device(), " and q on ",
                    device, "; move the mask with mask.to(q.device)");
}

void check_counts(const char* op, size_t lists, size_t sizes) {
  TORCH_CHECK_VALUE(lists == kLists && sizes == kSizes, op, ": the mask has ", lists, " lists and ",
                    sizes, " sizes; expected ", kLists, " and ", kSizes, ", as in a BlockMask");
}

masks::BlockMaskView checked_mask(at::TensorList lists, at::IntArrayRef sizes, at::Device device) {
  check_block_mask(kOp, lists, sizes, device);
  return block_mask_view(lists, sizes);
}

// Checks the requirements of the tensor-core kernels.
void check_kernel_takes(const Arg& q, double scale) {
  const auto type = q.tensor.scalar_type();
  TORCH_CHECK_VALUE(type == at::kHalf || type == at::kBFloat16, label(q), " is ", type, " on ",
                    q.tensor.device(), "; expected Half or BFloat16 on CUDA");
  const int64_t d = q.tensor.size(3);
  TORCH_CHECK_VALUE(d % 8 == 0 && d <= 128, label(q), " is ", q.tensor.sizes(),
                    "; on CUDA, head_dim is a multiple of 8 up to 128: pad it with zeros");
  TORCH_CHECK_VALUE(scale > 0, kOp, ": scale is ", scale, "; expected a positive number on CUDA");
}

void check_arguments(const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
  const Arg arg_q{kOp, "q", q}, arg_k{kOp, "k", k}, arg_v{kOp, "v", v};
  check_rank(arg_q, 4, "[B, H, queries, d]");
  check_rank(arg_k, 4, "[B, G, keys, d]");
  check_device(arg_q);
  if (q.is_cpu()) check_cpu_float(arg_q);
  check_like(arg_k, arg_q);
  check_like(arg_v, arg_q);
  check_sizes(arg_v, k.sizes(), "like k");
  TORCH_CHECK_VALUE(k.size(0) == q.size(0) && k.size(3) == q.size(3), kOp, ": k is ", k.sizes(),
                    " but q is ", q.sizes(), "; batch and head_dim must match");
  TORCH_CHECK_VALUE(q.size(3) > 0, kOp, ": q is ", q.sizes(), "; expected a head_dim of 1 or more");
  if (q.is_cuda()) check_kernel_takes(arg_q, scale);
  const int64_t heads = q.size(1), key_heads = k.size(1);
  TORCH_CHECK_VALUE(key_heads > 0 ? heads % key_heads == 0 : heads == 0, kOp, ": q has ", heads,
                    " heads and k has ", key_heads,
                    "; expected a multiple of k's, whose heads are shared");
}

void check_fits(const masks::BlockMaskView& mask, const Tensor& q, const Tensor& k) {
  TORCH_CHECK_VALUE(mask.queries == q.size(2) && mask.keys == k.size(2), kOp, ": the mask is for ",
                    mask.queries, " queries and ", mask.keys, " keys, but q has ", q.size(2),
                    " and k has ", k.size(2), "; make a mask of these lengths");
  TORCH_CHECK_VALUE(mask.batch == 1 || mask.batch == q.size(0), kOp, ": the mask has ", mask.batch,
                    " sequences; expected ", q.size(0), " (the batch of q) or 1");
}

// The tensor itself if kernels can read it: elements of a row are adjacent and, on CUDA, rows are
// aligned to 16 bytes; else a contiguous copy.
Tensor readable(const Tensor& t) {
  const Tensor dense = with_unit_last_stride(t);
  if (!t.is_cuda()) return dense;
  bool aligned = reinterpret_cast<uintptr_t>(dense.const_data_ptr()) % 16 == 0;
  for (const int64_t dim : {0, 1, 2}) aligned = aligned && dense.stride(dim) % 8 == 0;
  return aligned ? dense : dense.clone(at::MemoryFormat::Contiguous);
}

BatchedHeads heads_of(const Tensor& t) {
  return {t.mutable_data_ptr(), t.stride(0), t.stride(1), t.stride(2)};
}
// Read only, though the type does not say so.
BatchedHeads input_heads(const Tensor& t) {
  return {const_cast<void*>(t.const_data_ptr()), t.stride(0), t.stride(1), t.stride(2)};
}

// Everything of the problem but its outputs. q, k and v have a unit last stride.
MaskedAttentionParams params_of(const Tensor& q, const Tensor& k, const Tensor& v,
                                const masks::BlockMaskView& mask, double scale) {
  return {.mask = mask,
          .batch = q.size(0),
          .heads = q.size(1),
          .key_heads = k.size(1),
          .head_dim = q.size(3),
          .scale = scale,
          .q = input_heads(q),
          .k = input_heads(k),
          .v = input_heads(v)};
}

using Outputs = std::tuple<Tensor, Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

#ifdef SEQFUSE_HAS_CUDA

using attention::MaskedWay;
using attention::MaskedWork;

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

MaskedWork work_of(const MaskedAttentionParams& p, at::TensorList lists, at::IntArrayRef sizes,
                   bool contiguous) {
  return {.batch = p.batch,
          .heads = p.heads,
          .head_dim = p.head_dim,
          .queries = p.mask.queries,
          .keys = p.mask.keys,
          .query_blocks = p.mask.query_blocks,
          .mask_batch = p.mask.batch,
          .visited = lists[1].numel(),
          .allowed = sizes[5],
          .plain = static_cast<masks::Plain>(sizes[4]),
          // Short ones are not worth what cuDNN needs to prepare a new length.
          .library_takes =
              contiguous && p.heads == p.key_heads && p.mask.queries >= 256 && p.mask.keys >= 256,
          .processors = attribute(cudaDevAttrMultiProcessorCount)};
}

MaskedWay chosen_way(const MaskedWork& work) {
  try {
    return attention::choose_way(work);
  } catch (const Error& error) {
    TORCH_CHECK_VALUE(false, kOp, ": ", error.what());
  }
}

// By PyTorch's own attention: cuDNN's on SM 9.0 and newer, FlashAttention-2 elsewhere.
Outputs run_library(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale) {
  static std::atomic<bool> cudnn_works = true;
  const auto outputs = [&](const Tensor& out, const Tensor& lse) -> Outputs {
    return {out.contiguous(), lse.reshape({q.size(0), q.size(1), q.size(2)})};
  };
  if (forced_sm() == 0 && attribute(cudaDevAttrComputeCapabilityMajor) >= 9 && cudnn_works &&
      at::globalContext().userEnabledCuDNNSDP()) {
    try {
      const auto result = at::_scaled_dot_product_cudnn_attention(q, k, v, std::nullopt, true, 0.0,
                                                                  causal, false, scale);
      return outputs(std::get<0>(result), std::get<1>(result));
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& error) {
      cudnn_works = false;
      log::warning("masked_attention",
                   "cuDNN's attention failed, FlashAttention-2 is used instead: {}",
                   error.what_without_backtrace());
    }
  }
  const auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal, false, scale);
  return outputs(std::get<0>(result), std::get<1>(result));
}

#endif

// by_rows: on a GPU, a warp for each query.
Outputs run_kernels(const Tensor& q, const MaskedAttentionParams& inputs,
                    [[maybe_unused]] bool by_rows) {
  Tensor out = at::empty(q.sizes(), q.options());
  Tensor lse = at::empty({q.size(0), q.size(1), q.size(2)}, sum_options(q));
  MaskedAttentionParams params = inputs;
  params.out = heads_of(out);
  params.lse = lse.mutable_data_ptr();
#ifdef SEQFUSE_HAS_CUDA
  if (by_rows) {
    C10_CUDA_CHECK(
        masked_attention_rows_forward_cuda(params, dtype_of(q), c10::cuda::getCurrentCUDAStream()));
    return {out, lse};
  }
#endif
  SEQFUSE_RUN(q, masked_attention_forward, params, dtype_of(q));
  return {out, lse};
}

Outputs run_forward(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                    at::TensorList lists, at::IntArrayRef sizes, double scale) {
  check_arguments(q_in, k_in, v_in, scale);
  const masks::BlockMaskView mask = checked_mask(lists, sizes, q_in.device());
  check_fits(mask, q_in, k_in);
  const DeviceGuard guard(q_in);
  const Tensor q = readable(q_in), k = readable(k_in), v = readable(v_in);
  const MaskedAttentionParams params = params_of(q, k, v, mask, scale);
#ifdef SEQFUSE_HAS_CUDA
  if (q.is_cuda() && q.numel() > 0) {
    const bool contiguous = q.is_contiguous() && k.is_contiguous() && v.is_contiguous();
    const MaskedWork work = work_of(params, lists, sizes, contiguous);
    const MaskedWay way = chosen_way(work);
    attention::log_way(work, dtype_of(q), way);
    if (way == MaskedWay::library)
      return run_library(q, k, v, work.plain == masks::Plain::causal, scale);
    return run_kernels(q, params, way == MaskedWay::rows);
  }
#endif
  return run_kernels(q, params, false);
}

Outputs forward_shapes(const Tensor& q, const Tensor&, const Tensor&, at::TensorList,
                       c10::SymIntArrayRef, double) {
  return {empty_like_shape(q),
          empty_shape({q.sym_size(0), q.sym_size(1), q.sym_size(2)}, sum_options(q))};
}

Gradients run_backward(const Tensor& dout_in, const std::optional<Tensor>& dlse_in,
                       const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                       const Tensor& out_in, const Tensor& lse_in, at::TensorList lists,
                       at::IntArrayRef sizes, double scale) {
  check_arguments(q_in, k_in, v_in, scale);
  const masks::BlockMaskView mask = checked_mask(lists, sizes, q_in.device());
  check_fits(mask, q_in, k_in);
  check_sizes({kOp, "dout", dout_in}, q_in.sizes(), "like q");
  check_sizes({kOp, "out", out_in}, q_in.sizes(), "like q");
  check_sizes({kOp, "lse", lse_in}, q_in.sizes().slice(0, 3), "a number for each query");
  const DeviceGuard guard(q_in);
  const Tensor q = readable(q_in), k = readable(k_in), v = readable(v_in), dout = readable(dout_in);
  const Tensor out = readable(out_in), lse = lse_in.contiguous();
  const Tensor dlse = contiguous_or_undefined(dlse_in);
  Tensor dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()),
         dv = at::empty(v.sizes(), v.options());
  const Tensor delta = at::empty({q.is_cuda() ? 2 : 1, lse.numel()}, lse.options());
  MaskedAttentionParams params = params_of(q, k, v, mask, scale);
  params.out = input_heads(out);
  params.lse = const_cast<void*>(lse.const_data_ptr());
  params.dout = input_heads(dout);
  params.dq = heads_of(dq);
  params.dk = heads_of(dk);
  params.dv = heads_of(dv);
  params.dlse = data_or_null(dlse);
  params.delta = delta.mutable_data_ptr();
  SEQFUSE_RUN(q, masked_attention_backward, params, dtype_of(q));
  return {dq, dk, dv};
}

Gradients backward_shapes(const Tensor&, const std::optional<Tensor>&, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor&, const Tensor&,
                          at::TensorList, c10::SymIntArrayRef, double) {
  return {empty_like_shape(q), empty_like_shape(k), empty_like_shape(v)};
}

// The arguments without gradients.
struct MaskArguments {
  std::vector<Tensor> lists;
  std::vector<c10::SymInt> sizes;
  double scale = 1;
};

class MaskedAttention : public torch::autograd::Function<MaskedAttention> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& q, const Tensor& k,
                               const Tensor& v, const MaskArguments& mask) {
    static const auto op = find_operator<decltype(forward_shapes)>(kForward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [out, lse] = op.call(q, k, v, mask.lists, mask.sizes, mask.scale);
    variable_list saved{q, k, v, out, lse};
    saved.insert(saved.end(), mask.lists.begin(), mask.lists.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["sizes"] = c10::SymIntArrayRef(mask.sizes);
    context->saved_data["scale"] = mask.scale;
    return {out, lse};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<decltype(backward_shapes)>(kBackward);
    const auto t = context->get_saved_variables();
    const std::vector<c10::SymInt> sizes = context->saved_data["sizes"].toSymIntVector();
    const Tensor dout = gradients[0].defined() ? gradients[0] : at::zeros_like(t[3]);
    const std::vector<Tensor> lists(t.begin() + 5, t.end());
    auto [dq, dk, dv] = op.call(dout, optional_of(gradients[1]), t[0], t[1], t[2], t[3], t[4],
                                lists, sizes, context->saved_data["scale"].toDouble());
    return {dq, dk, dv, Tensor()};
  }
};

Outputs with_gradient(const Tensor& q, const Tensor& k, const Tensor& v, at::TensorList lists,
                      c10::SymIntArrayRef sizes, double scale) {
  check_counts(kOp, lists.size(), sizes.size());
  const auto result =
      MaskedAttention::apply(q, k, v, MaskArguments{lists.vec(), sizes.vec(), scale});
  return {result[0], result[1]};
}

}  // namespace
}  // namespace masked_attention_op

void check_block_mask(const char* op, at::TensorList lists, at::IntArrayRef sizes,
                      at::Device device) {
  masked_attention_op::check_counts(op, lists.size(), sizes.size());
  TORCH_CHECK_VALUE(sizes[3] >= 1 && sizes[3] <= masks::kUnlimited, op, ": the mask's step is ",
                    sizes[3], "; expected 1 or more, as in a BlockMask");
  const auto step = static_cast<int32_t>(sizes[3]);
  const masks::BlockMaskView view{.batch = sizes[0],
                                  .queries = sizes[1],
                                  .keys = sizes[2],
                                  .query_blocks = masks::count_of_blocks(sizes[1], step),
                                  .key_blocks = masks::count_of_blocks(sizes[2], step),
                                  .step = step};
  const int64_t entries = lists[1].numel(), bitmaps = lists[8].size(0);
  const int64_t rows = view.batch * view.query_blocks, columns = view.batch * view.key_blocks;
  const auto check = [&](size_t i, const char* name, at::ScalarType type, at::IntArrayRef of) {
    masked_attention_op::check_list(op, name, lists[i], type, of, device);
  };
  check(0, "row_begin", at::kInt, {rows + 1});
  check(1, "column", at::kInt, {entries});
  check(2, "bitmap", at::kInt, {entries});
  check(3, "row_order", at::kInt, {rows});
  check(4, "column_begin", at::kInt, {columns + 1});
  check(5, "row", at::kInt, {entries});
  check(6, "column_bitmap", at::kInt, {entries});
  check(7, "column_order", at::kInt, {columns});
  check(8, "bits", at::kLong, {bitmaps, masks::kBlock});
  check(9, "seen", at::kLong, {bitmaps, 2});
}

masks::BlockMaskView block_mask_view(at::TensorList lists, at::IntArrayRef sizes) {
  const auto step = static_cast<int32_t>(sizes[3]);
  const auto ints = [&](size_t i) { return lists[i].const_data_ptr<int32_t>(); };
  const auto words = [&](size_t i) {
    return reinterpret_cast<const uint64_t*>(lists[i].const_data_ptr<int64_t>());
  };
  masks::BlockMaskView view{.batch = sizes[0],
                            .queries = sizes[1],
                            .keys = sizes[2],
                            .query_blocks = masks::count_of_blocks(sizes[1], step),
                            .key_blocks = masks::count_of_blocks(sizes[2], step),
                            .step = step};
  view.row_begin = ints(0);
  view.column = ints(1);
  view.bitmap = ints(2);
  view.row_order = ints(3);
  view.column_begin = ints(4);
  view.row = ints(5);
  view.column_bitmap = ints(6);
  view.column_order = ints(7);
  view.bits = words(8);
  view.seen = words(9);
  return view;
}

BlockMaskTensors block_mask_tensors(masks::BlockMask mask) {
  const auto kept = std::make_shared<masks::BlockMask>(std::move(mask));
  const auto tensor = [&](auto& values, at::ScalarType type, std::vector<int64_t> sizes = {}) {
    if (sizes.empty()) sizes = {static_cast<int64_t>(values.size())};
    if (values.empty()) return at::empty(sizes, type);
    return at::from_blob(values.data(), sizes, [kept](void*) {}, type);
  };
  const int64_t bitmaps = static_cast<int64_t>(kept->seen.size()) / 2;
  return {.lists = {tensor(kept->row_begin, at::kInt), tensor(kept->column, at::kInt),
                    tensor(kept->bitmap, at::kInt), tensor(kept->row_order, at::kInt),
                    tensor(kept->column_begin, at::kInt), tensor(kept->row, at::kInt),
                    tensor(kept->column_bitmap, at::kInt), tensor(kept->column_order, at::kInt),
                    tensor(kept->bits, at::kLong, {bitmaps, masks::kBlock}),
                    tensor(kept->seen, at::kLong, {bitmaps, 2})},
          .batch = kept->batch,
          .queries = kept->queries,
          .keys = kept->keys,
          .step = kept->step,
          .plain = kept->plain,
          .allowed = kept->counts().allowed};
}

std::tuple<Tensor, Tensor> masked_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const BlockMaskTensors& mask, double scale) {
  static const auto op =
      find_operator<decltype(masked_attention_op::with_gradient)>(masked_attention_op::kForward);
  const std::vector<int64_t> values = mask.sizes();
  const std::vector<c10::SymInt> sizes(values.begin(), values.end());
  return op.call(q, k, v, mask.lists, sizes, scale);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace masked_attention_op;
  const std::string mask = "Tensor[] mask, SymInt[] mask_sizes, float scale";
  Definition(library,
             "masked_attention(Tensor q, Tensor k, Tensor v, " + mask + ") -> (Tensor, Tensor)")
      .kernels(&run_forward, &forward_shapes)
      .autograd(&with_gradient);
  Definition(library,
             "masked_attention_backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, "
             "Tensor out, Tensor lse, " +
                 mask + ") -> (Tensor, Tensor, Tensor)")
      .kernels(&run_backward, &backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
