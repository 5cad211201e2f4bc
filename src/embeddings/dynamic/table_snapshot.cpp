#include "embeddings/dynamic/table_snapshot.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace seqfuse::embeddings {

TableSnapshot::TableSnapshot(const HashTable& table)
    : since_(table.calls()),
      moves_(table.moves()),
      by_slot_(at::empty({table.slots(), table.width()}, at::kFloat)) {}

void TableSnapshot::take_staged() {
  if (!std::exchange(is_staged_, false)) return;
  copied_->synchronize();
  by_slot_.slice(0, next_ - staged_rows_, next_).copy_(staged_.slice(0, 0, staged_rows_));
}

bool TableSnapshot::copy(const HashTable& table, int64_t slots) {
  take_staged();
  if (moves_ != table.moves()) return false;  // they lie elsewhere
  const int64_t end = std::min(table.slots(), next_ + std::max<int64_t>(1, slots));
  const int64_t count = end - next_;
  if (count == 0) return false;
  const at::Tensor rows = table.rows_in_slots(next_, end);
  const at::Device device = rows.device();
  if (device.is_cpu()) {
    by_slot_.slice(0, next_, end).copy_(rows);
  } else {
    if (!staged_.defined() || staged_.size(0) < count) {
      staged_ = at::empty({count, table.width()},
                          at::TensorOptions().dtype(at::kFloat).pinned_memory(true));
      copied_.emplace(device.type());
    }
    staged_.slice(0, 0, count).copy_(rows, /*non_blocking=*/true);
    copied_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    staged_rows_ = count;
    is_staged_ = true;
  }
  next_ = end;
  return next_ < table.slots();
}

TableSnapshot::Taken TableSnapshot::finish(const HashTable& table) {
  take_staged();
  Taken taken{.keys = table.keys(), .by_slot = std::move(by_slot_), .late = {}, .late_rows = {}};
  at::Tensor late = taken.keys.slots.ge(next_);
  if (moves_ != table.moves()) {
    late.fill_(true);
  } else {
    // Rows of the last insert before the start may have been updated after it.
    late.logical_or_(
        taken.keys.touched.to(at::kLong).bitwise_and(0xFFFFFFFF).ge(std::max<int64_t>(1, since_)));
  }
  taken.late = late.nonzero().flatten();
  taken.late_rows = table.rows_of(taken.keys.ids.index_select(0, taken.late),
                                  taken.keys.slots.index_select(0, taken.late));
  return taken;
}

at::Tensor TableSnapshot::rows_of(const Taken& taken) {
  if (taken.late.numel() == taken.keys.size()) return taken.late_rows;
  return taken.by_slot.index_select(0, taken.keys.slots)
      .index_copy_(0, taken.late, taken.late_rows);
}

}  // namespace seqfuse::embeddings
