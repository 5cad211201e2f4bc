#include "ops/kernels/attention/dense_mask.h"

#include "base/parallel.h"

namespace seqfuse::ops {

void dense_mask_cpu(const DenseMaskParams& p) {
  parallel_for(p.batch * p.max_len, 16, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const attention::RowMask row = attention::dense_row(p, at / p.max_len, at % p.max_len);
      bool* const to = p.mask + at * p.max_len;
      for (int64_t j = 0; j < p.max_len; ++j) to[j] = row.sees(static_cast<int>(j));
    }
  });
}

}  // namespace seqfuse::ops
