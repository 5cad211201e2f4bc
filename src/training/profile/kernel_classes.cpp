#include "training/profile/kernel_classes.h"

#include <algorithm>
#include <span>

namespace seqfuse::training {
namespace {

using enum KernelClass;

struct Rule {
  std::string_view part;  // of the name; without "::", which mangled names do not have
  KernelClass kernel_class;
};

// The first matching rule wins. Kernels with the same name differ in their argument's type.
constexpr Rule kOurs[] = {
    {"gemm", products},
    {"ColumnSums", products},       // bias gradient of a product
    {"bias_activation", products},  // what follows a product
    {"Encoding", embeddings},
    {"Jagged", embeddings},
    {"RowSum", embeddings},
    {"position_index_kernel", embeddings},
    {"time_index_kernel", embeddings},
    {"SampledSoftmax", loss},
    {"FullSoftmax", loss},
    {"SampleUniform", loss},
    {"L2Normalize", norms},
    {"residual_norm", norms},
    {"norm_forward", norms},
    {"norm_backward", norms},
    {"column_parts_kernel", norms},
    {"add_parts_kernel", norms},
    {"forward_kernel", attention_forward},
    {"forward_lagging_kernel", attention_forward},
    {"forward_pairs_kernel", attention_forward},
    {"forward_list_kernel", attention_forward},
    {"dense_mask_kernel", attention_forward},
    {"check_sequences_kernel", attention_forward},
    {"backward_kernel", attention_backward},
    {"backward_wide_kernel", attention_backward},
    {"backward_queries_kernel", attention_backward},
    {"backward_keys_kernel", attention_backward},
    {"masked_rows_kernel", attention_forward},
    {"masked_delta_kernel", attention_backward},
    {"BlockMaskBuild", attention_forward},
    {"finish_dq_kernel", attention_backward},
    {"bias_gradient_kernel", attention_backward},
    {"bias_sums_kernel", attention_backward},
    {"add_totals_kernel", attention_backward},
    {"backward_prepare_kernel", attention_backward},
    {"time_tables_kernel", attention_backward},
    {"times_kernel", attention_backward},
    {"GatBackward", attention_backward},
    {"EdgeSum", attention_forward},  // sums over the edges of a graph
    {"EdgeDot", attention_forward},
    {"EdgeLists", attention_forward},
    {"UpdateRows", optimizer},  // of a table of rows by id
    {"hash_table", embeddings},
    {"StepStart", optimizer},
    {"StepScalars", optimizer},
};

// Kernels of PyTorch, its libraries and the driver.
constexpr Rule kOthers[] = {
    {"Memcpy", copies},
    {"Memset", copies},
    {"nccl", communication},
    {"CopyFunctor", other},  // converts small weights to 16 bits
    {"multi_tensor_apply_kernel", optimizer},
    {"amp_update_scale", optimizer},
    {"SoftMax", loss},
    {"softmax", loss},
    {"nll_loss", loss},
    {"log_sigmoid", loss},
    {"indexSelect", embeddings},
    {"indexFunc", embeddings},
    {"index_elementwise_kernel", embeddings},
    {"vectorized_gather_kernel", embeddings},
    {"RadixSort", embeddings},  // sorts ids for table gradients
    {"coalesce", embeddings},
    {"gemm", products},
    {"gemv", products},
    {"cutlass", products},
    {"cublas", products},
    {"nvjet", products},
    {"xmma", products},
    {"splitK", products},
    {"sm80_", products},
    {"sm90_", products},
};

}  // namespace

KernelClass kernel_class(std::string_view name) {
  const bool ours = name.find("seqfuse") != std::string_view::npos;
  const std::span<const Rule> rules = ours ? std::span<const Rule>(kOurs) : kOthers;
  const auto rule = std::ranges::find_if(
      rules, [&](const Rule& r) { return name.find(r.part) != std::string_view::npos; });
  return rule == rules.end() ? other : rule->kernel_class;
}

const char* name_of(KernelClass kernel_class) {
  switch (kernel_class) {
    case attention_forward:
      return "attention forward";
    case attention_backward:
      return "attention backward";
    case products:
      return "matrix products";
    case norms:
      return "norms and gate";
    case embeddings:
      return "embeddings and jagged";
    case loss:
      return "loss";
    case optimizer:
      return "optimiser";
    case communication:
      return "communication";
    case copies:
      return "copies";
    case other:
      return "other elementwise";
  }
  return "";
}

}  // namespace seqfuse::training
