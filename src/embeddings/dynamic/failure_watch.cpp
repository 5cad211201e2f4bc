#include "embeddings/dynamic/failure_watch.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/error.h"

namespace seqfuse::embeddings {

void FailureWatch::report(const HashTable& table, int64_t failed) {
  if (failed < reported_) reported_ = 0;  // the table was cleared or loaded
  const int64_t more = failed - reported_;
  reported_ = failed;
  const HashTableOptions& options = table.options();
  SEQFUSE_CHECK(
      more <= 0,
      "table {}: {} ids found no place among {} rows, and have the shared row: raise the "
      "capacity{}",
      options.name, more, options.capacity,
      options.evict ? ", which one batch's ids alone exceed" : ", or let the table evict");
}

void FailureWatch::check(const HashTable& table) {
  report(table, table.counts().failed);
}

void FailureWatch::after_insert(const HashTable& table) {
  if (table.options().device.is_cpu()) return check(table);
  const c10::impl::VirtualGuardImpl device(table.options().device.type());
  if (copied_) {
    if (!copied_->query()) return;
    report(table, copy_.const_data_ptr<int64_t>()[ops::hash_table::kFailed]);
  } else {
    copy_ = at::zeros({ops::hash_table::kCounters},
                      at::TensorOptions().dtype(at::kLong).pinned_memory(true));
    copied_.emplace(table.options().device.type());
  }
  copy_.copy_(table.counters(), /*non_blocking=*/true);
  copied_->record(device.getStream(table.options().device));
}

}  // namespace seqfuse::embeddings
