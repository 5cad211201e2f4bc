#include "ops/kernels/attention/masked_variant.h"

namespace seqfuse::ops::attention::sm80 {

std::span<const MaskedVariant> masked_variants(MaskedPass pass) {
  switch (pass) {
    case MaskedPass::forward:
      return masked_forward_variants();
    case MaskedPass::forward_rows:
      return masked_rows_variants();
    case MaskedPass::backward_queries:
      return masked_queries_variants();
    case MaskedPass::backward_keys:
      return masked_keys_variants();
  }
  return {};
}

}  // namespace seqfuse::ops::attention::sm80
