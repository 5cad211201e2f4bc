#include "embeddings/dynamic/failure_watch.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/error.h"

namespace seqfuse::embeddings {

void FailureWatch::report(const HashTable& table, int64_t failed) {
  const int64_t more = failed - reported_;
  reported_ = failed;
  const HashTableOptions& options = table.options();
  SEQFUSE_CHECK(more <= 0,
                "table {}: {} ids found no place among {} rows, and have the shared row: raise the "
                "capacity{}",
                options.name, more, options.capacity,
                options.evict
                    ? ", since every row whose place they could have taken is of the same batch"
                    : ", or let the table evict");
}

void FailureWatch::check(const HashTable& table) {
  pending_ = false;  // what it counted is in the count of now
  report(table, table.counts().failed);
}

void FailureWatch::restart() {
  reported_ = 0;
  pending_ = false;
}

void FailureWatch::after_insert(const HashTable& table) {
  if (table.options().device.is_cpu()) return check(table);
  const c10::impl::VirtualGuardImpl device(table.options().device.type());
  if (pending_) {
    if (!copied_->query()) return;
    pending_ = false;
    report(table, copy_.const_data_ptr<int64_t>()[ops::hash_table::kFailed]);
  }
  if (!copied_) {
    copy_ = at::zeros({ops::hash_table::kCounters},
                      at::TensorOptions().dtype(at::kLong).pinned_memory(true));
    copied_.emplace(table.options().device.type());
  }
  copy_.copy_(table.counters(), /*non_blocking=*/true);
  copied_->record(device.getStream(table.options().device));
  pending_ = true;
}

}  // namespace seqfuse::embeddings
