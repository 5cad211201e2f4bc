// The memory of a hash table: checks of options, allocation, growth.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "embeddings/dynamic/hash_table.h"

namespace seqfuse::embeddings {
namespace {

namespace op = ops::hash_table;

using op::Storage;

constexpr int64_t kVectorFloats = 4;  // rows begin at multiples of 16 bytes

HashTableOptions checked(HashTableOptions options) {
  const auto& name = options.name;
  SEQFUSE_CHECK_AS(UsageError, options.capacity >= 1,
                   "table {}: the capacity is {}; expected at least 1", name, options.capacity);
  SEQFUSE_CHECK_AS(UsageError, options.initial_capacity >= 1,
                   "table {}: the initial capacity is {}; expected at least 1", name,
                   options.initial_capacity);
  SEQFUSE_CHECK_AS(UsageError, options.list_evicted >= 0,
                   "table {}: {} evicted ids are kept; expected 0 or more", name,
                   options.list_evicted);
  const RowInit& init = options.init;
  for (const double number : {init.a, init.b, init.lower, init.upper}) {
    SEQFUSE_CHECK_AS(UsageError, std::isfinite(number),
                     "table {}: a number of the initial weights is {}; expected finite numbers",
                     name, number);
  }
  SEQFUSE_CHECK_AS(UsageError, init.kind != RowInit::uniform || init.a <= init.b,
                   "table {}: initial weights are uniform from {} to {}; expected the lower bound "
                   "first",
                   name, init.a, init.b);
  if (init.kind == RowInit::truncated_normal) {
    SEQFUSE_CHECK_AS(
        UsageError, init.lower < init.upper && init.lower <= init.a && init.a <= init.upper,
        "table {}: initial weights are normal with mean {}, cut off below {} and above "
        "{}; expected bounds around the mean",
        name, init.a, init.lower, init.upper);
  }
  SEQFUSE_CHECK_AS(UsageError,
                   init.kind == RowInit::constant || init.kind == RowInit::uniform || init.b >= 0,
                   "table {}: the standard deviation of initial weights is {}; expected 0 or more",
                   name, init.b);
  SEQFUSE_CHECK_AS(UsageError, options.device_rows >= (options.cached ? 1 : 0),
                   "table {}: {} rows are in the memory of the device; expected at least {}", name,
                   options.device_rows, options.cached ? "1, for the cache" : "0");
  options.initial_capacity = std::min(options.initial_capacity, options.capacity);
  return options;
}

}  // namespace

int64_t grown_capacity(int64_t allocated, int64_t needed, int64_t capacity) {
  const int64_t rows = std::max(2 * allocated, needed);
  return rows > capacity / 2 ? capacity : rows;
}

// Runs make(); an allocation that fails says what it was for.
template <class Make>
auto HashTable::with_memory(int64_t capacity, Make&& make) const {
  try {
    return make();
  } catch (c10::Error& error) {
    error.add_context(fmt::format("table {}: memory for {} rows of {} bytes", options_.name,
                                  capacity, stride_ * static_cast<int64_t>(sizeof(float))));
    throw;
  }
}

HashTable::HashTable(HashTableOptions options)
    : options_(checked(std::move(options))),
      stride_((width() + kVectorFloats - 1) / kVectorFloats * kVectorFloats),
      storage_(allocate(options_.initial_capacity)) {
  options_.device = storage_.digests.device();  // with its number
  values_ = allocate_rows(storage_);
  if (options_.cached) {
    const int64_t rows = std::min(options_.device_rows, options_.capacity);
    with_memory(rows, [&] { cache_.emplace(rows, stride_, options_.device, options_.in_order); });
  }
  const auto integer = at::TensorOptions().device(options_.device).dtype(at::kLong);
  if (options_.list_evicted > 0) {
    evicted_ids_ = at::empty({options_.list_evicted + 1}, integer);
    evicted_scores_ = at::empty_like(evicted_ids_);
  }
}

Storage HashTable::allocate(int64_t capacity) const {
  return with_memory(capacity, [&] { return Storage(capacity, options_.device); });
}

at::TensorOptions HashTable::floats() const {
  return at::TensorOptions().device(options_.device).dtype(at::kFloat);
}

HashTable::Values HashTable::allocate_rows(const Storage& storage) const {
  return with_memory(storage.capacity, [&] {
    Values values;
    // There are more slots than rows: all rows on the device means all slots.
    const bool all = options_.device_rows >= options_.capacity;
    const int64_t wanted = all ? storage.slots() : std::min(options_.device_rows, storage.slots());
    int64_t here = options_.cached ? 0 : wanted;
    const int64_t host = storage.slots() - here;
    if (host > 0 && options_.device.is_cpu()) {
      values.host = at::zeros({host, stride_}, floats());
    } else if (host > 0) {
      values.host = op::pinned_rows(host, stride_, options_.device);
    }
    if (host > 0 && !values.host.defined()) {
      log::warning(
          "table",
          "table {}: {}B of the host's memory cannot be pinned; its rows are in the memory "
          "of the GPU",
          options_.name, format_count(static_cast<double>(host * stride_ * 4)));
      values.host = at::zeros({host, stride_}, floats());
    }
    values.here = at::zeros({here, stride_}, floats());
    return values;
  });
}

int64_t HashTable::bytes() const {
  const bool host_is_device = values_.host.defined() && values_.host.device() == options_.device;
  return static_cast<int64_t>(values_.here.nbytes() + storage_.digests.nbytes() +
                              storage_.keys.nbytes() + storage_.scores.nbytes() +
                              storage_.touched.nbytes() +
                              (host_is_device ? values_.host.nbytes() : 0)) +
         (cache_ ? cache_->bytes() : 0);
}

int64_t HashTable::host_bytes() const {
  const bool apart = values_.host.defined() && values_.host.device() != options_.device;
  return apart ? static_cast<int64_t>(values_.host.nbytes()) : 0;
}

// Grows a table whose allocated rows may not suffice. Its size and the number of ids of the batch (limit)
// are read only once the ids of all inserts since the last reading could fill it.
void HashTable::make_room(int64_t ids, const at::Tensor& limit) {
  if (capacity() == options_.capacity) return;
  size_at_most_ += ids;
  if (size_at_most_ <= capacity()) return;
  if (limit.defined()) ids = std::min(ids, limit.item<int64_t>());
  size_at_most_ = size() + ids;
  if (size_at_most_ <= capacity()) return;
  grow(grown_capacity(capacity(), size_at_most_, options_.capacity));
}

// The slots of new ids with these scores.
at::Tensor HashTable::insert_scored(const Storage& storage, const at::Tensor& ids,
                                    const at::Tensor& scores) const {
  at::Tensor slots = at::empty_like(ids);
  at::Tensor states = at::empty({ids.numel()}, storage.digests.options());
  op::run(op::Insert{.table = storage.view(),
                     .keys = ids.const_data_ptr<int64_t>(),
                     .count = ids.numel(),
                     .limit = nullptr,
                     .often = nullptr,
                     .given = scores.const_data_ptr<int64_t>(),
                     .allowed = nullptr,
                     .score = Score::custom,
                     .now = 0,
                     .call = 1,
                     .evict = false,
                     .in_order = options_.in_order,
                     .evicted = {},
                     .slots = slots.mutable_data_ptr<int64_t>(),
                     .states = states.mutable_data_ptr<uint8_t>()},
          options_.device);
  return slots;
}

void HashTable::grow(int64_t capacity) {
  // The table does not change until all memory is allocated.
  Storage larger = allocate(capacity);
  Values values = allocate_rows(larger);
  const at::Tensor from = storage_.digests.nonzero().flatten();
  const at::Tensor ids = storage_.keys.index_select(0, from),
                   scores = storage_.scores.index_select(0, from);
  const at::Tensor to = insert_scored(larger, ids, scores);
  SEQFUSE_CHECK(larger.counters[op::kFailed].item<int64_t>() == 0,
                "table {}: not all of {} ids found a place in a table of {} rows while it grew",
                options_.name, ids.numel(), capacity);
  larger.touched.index_copy_(0, to, storage_.touched.index_select(0, from));
  const at::Tensor places = cache_ ? cache_->places(ids, {}, from) : from;
  op::run(op::CopyRows{.from = view(),
                       .to = view_of(values),
                       .from_slots = places.const_data_ptr<int64_t>(),
                       .to_slots = to.const_data_ptr<int64_t>(),
                       .states = nullptr,
                       .state = 0,
                       .count = ids.numel(),
                       .limit = nullptr},
          options_.device);
  larger.counters.copy_(storage_.counters);
  storage_ = std::move(larger);
  values_ = std::move(values);
  ++moves_;
  if (cache_) cache_->clear();  // all rows are at home now
}

}  // namespace seqfuse::embeddings
