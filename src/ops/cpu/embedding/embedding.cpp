#include "ops/kernels/jagged/embedding.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/parallel.h"
#include "ops/cpu/row_loop.h"

namespace seqfuse::ops {

template <class Id>
int64_t first_outside_cpu(const Id* ids, int64_t count, int64_t num_rows) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  using Unsigned = std::make_unsigned_t<Id>;
  // As unsigned, negative ids are large, so one comparison catches both errors.
  const auto limit =
      static_cast<Unsigned>(std::min<int64_t>(num_rows, std::numeric_limits<Id>::max()));
  const auto is_outside = [limit](Id id) { return static_cast<Unsigned>(id) >= limit; };
  std::atomic<int64_t> first = kNone;
  parallel_for(count, 16384, [&](int64_t begin, int64_t end) {
    bool any = false;
    for (int64_t i = begin; i < end; ++i) any |= is_outside(ids[i]);
    if (!any) return;
    const int64_t found = std::find_if(ids + begin, ids + end, is_outside) - ids;
    for (int64_t seen = first; found < seen && !first.compare_exchange_weak(seen, found);) {
    }
  });
  return first == kNone ? -1 : first.load();
}

void embedding_forward_cpu(const EmbeddingParams& params, DType dtype) {
  const int64_t row_bytes = params.dim * size_of(dtype);
  const auto* table = static_cast<const std::byte*>(params.table);
  auto* out = static_cast<std::byte*>(params.out);
  cpu::for_each_row(params.count, params.dim, [&](int64_t i) {
    std::memcpy(out + i * row_bytes, table + params.ids[i] * row_bytes,
                static_cast<size_t>(row_bytes));
  });
}

template int64_t first_outside_cpu(const int32_t*, int64_t, int64_t);
template int64_t first_outside_cpu(const int64_t*, int64_t, int64_t);

}  // namespace seqfuse::ops
