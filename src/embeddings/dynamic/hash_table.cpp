#include "embeddings/dynamic/hash_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"

namespace seqfuse::embeddings {
namespace {

namespace op = ops::hash_table;

using op::Storage;

constexpr int64_t kRowsBlockBytes = int64_t{64} << 20;  // copied at a time while growing
constexpr int64_t kVectorFloats = 4;                    // rows begin at multiples of 16 bytes

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

const int64_t* integers(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<int64_t>() : nullptr;
}
const uint8_t* bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<uint8_t>() : nullptr;
}

}  // namespace

// Runs make(); if memory does not suffice, the error says what it was for.
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
    // Slots are more than rows: all rows on the device are all slots.
    const bool all = options_.device_rows >= options_.capacity;
    const int64_t wanted = all ? storage.slots() : std::min(options_.device_rows, storage.slots());
    int64_t here = options_.cached ? 0 : wanted;
    const int64_t host = storage.slots() - here;
    if (host > 0 && options_.device.is_cpu()) {
      values.host = at::zeros({host, stride_}, floats());
    } else if (host > 0) {
      values.host = op::pinned_rows(host, stride_);
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

op::Rows HashTable::view_of(const Values& values) const {
  op::Rows rows{.values = values.here.mutable_data_ptr<float>(),
                .stride = stride_,
                .dim = options_.dim,
                .width = width()};
  if (values.host.defined()) {
    rows.others = values.host.mutable_data_ptr<float>();
    rows.split = values.here.size(0);
  }
  return rows;
}

op::Rows HashTable::view() const {
  return cache_ ? cache_->rows(view_of(values_)) : view_of(values_);
}

at::Tensor HashTable::read_rows(const at::Tensor& slots) const {
  op::Rows whole = view();
  whole.dim = width();
  at::Tensor rows = at::empty({slots.numel(), width()}, floats());
  const at::Tensor nothing = at::zeros({width()}, floats());
  op::run(op::GatherRows{.rows = whole,
                         .slots = slots.const_data_ptr<int64_t>(),
                         .index = nullptr,
                         .count = slots.numel(),
                         .missing = nothing.const_data_ptr<float>(),
                         .out = rows.mutable_data_ptr<float>()},
          options_.device);
  return rows;
}

void HashTable::write_rows(const at::Tensor& slots, const at::Tensor& given) {
  const at::Tensor rows = given.to(floats()).contiguous();
  op::run(op::CopyRows{.from = {.values = rows.mutable_data_ptr<float>(),
                                .stride = width(),
                                .dim = options_.dim,
                                .width = width()},
                       .to = view(),
                       .from_slots = nullptr,
                       .to_slots = slots.const_data_ptr<int64_t>(),
                       .states = nullptr,
                       .state = 0,
                       .count = slots.numel(),
                       .limit = nullptr},
          options_.device);
}

// Rows [n, width], on any device, to slots of these values, some at a time.
void HashTable::copy_in(const Values& values, const at::Tensor& slots,
                        const at::Tensor& rows) const {
  const int64_t block = std::max<int64_t>(1, kRowsBlockBytes / std::max<int64_t>(1, stride_ * 4));
  for (int64_t begin = 0; begin < slots.numel(); begin += block) {
    const int64_t end = std::min(slots.numel(), begin + block);
    const at::Tensor part = rows.slice(0, begin, end).to(floats()).contiguous();
    op::run(op::CopyRows{.from = {.values = part.mutable_data_ptr<float>(),
                                  .stride = width(),
                                  .dim = options_.dim,
                                  .width = width()},
                         .to = view_of(values),
                         .from_slots = nullptr,
                         .to_slots = slots.const_data_ptr<int64_t>() + begin,
                         .states = nullptr,
                         .state = 0,
                         .count = end - begin,
                         .limit = nullptr},
            options_.device);
  }
}

at::Tensor HashTable::find(const at::Tensor& ids, const at::Tensor& limit) const {
  at::Tensor slots = at::empty_like(ids);
  if (limit.defined()) slots.fill_(-1);
  op::run(op::Find{.table = storage_.view(),
                   .keys = ids.const_data_ptr<int64_t>(),
                   .count = ids.numel(),
                   .limit = integers(limit),
                   .slots = slots.mutable_data_ptr<int64_t>()},
          options_.device);
  return cache_ ? cache_->places(ids, limit, slots) : slots;
}

void HashTable::check_scores(bool scores, bool step) const {
  const bool custom = options_.score == Score::custom, steps = options_.score == Score::step;
  SEQFUSE_CHECK_AS(UsageError, scores == custom,
                   "table {}: scores are {} with a batch; expected exactly if the table's score is "
                   "custom",
                   options_.name, scores ? "given" : "not given");
  SEQFUSE_CHECK_AS(UsageError, step == steps,
                   "table {}: a step is {} with a batch; expected exactly if the table's score is "
                   "step",
                   options_.name, step ? "given" : "not given");
}

bool HashTable::takes_repeated() const {
  return options_.device.is_cuda() && capacity() == options_.capacity && !options_.in_order &&
         !cache_ && (options_.score == Score::lru || options_.score == Score::step);
}

HashTable::Inserted HashTable::insert(const Insert& batch) {
  const int64_t count = batch.ids.numel();
  check_scores(batch.scores.defined(), batch.step.has_value());
  make_room(count, batch.limit);
  ++changes_;
  if (static_cast<uint32_t>(++calls_) == 0) {  // the numbers in `touched` start again
    storage_.touched.zero_();
    ++calls_;
  }

  Inserted result;
  result.slots = at::full({count}, -1, batch.ids.options());
  result.states = at::zeros({count}, batch.ids.options().dtype(at::kByte));
  op::Evicted evicted{};
  at::Tensor evicted_slots, kept_count;
  const bool list = batch.list || cache_;  // evicted rows leave the cache too
  if (list) {
    result.evicted_ids = at::empty_like(batch.ids);
    result.evicted_scores = at::empty_like(batch.ids);
    evicted_slots = at::full({count}, -1, batch.ids.options());
    evicted = {.keys = result.evicted_ids.mutable_data_ptr<int64_t>(),
               .scores = result.evicted_scores.mutable_data_ptr<int64_t>(),
               .slots = evicted_slots.mutable_data_ptr<int64_t>(),
               .room = count};
    at::Tensor listed = storage_.counters.slice(0, op::kListed);
    kept_count = listed.slice(0, 0, 1).clone();
    listed.slice(0, 0, 1).zero_();
  } else if (evicted_ids_.defined()) {
    evicted = {.keys = evicted_ids_.mutable_data_ptr<int64_t>(),
               .scores = evicted_scores_.mutable_data_ptr<int64_t>(),
               .slots = nullptr,
               .room = options_.list_evicted};
  }
  at::Tensor leaders, claims, claimed;
  if (batch.repeated) {
    leaders = at::empty_like(batch.ids);
    claims = at::empty({op::claim_slots(count)}, batch.ids.options().dtype(at::kInt));
    claimed = at::empty_like(result.states);
  }
  op::run(op::Insert{.table = storage_.view(),
                     .keys = batch.ids.const_data_ptr<int64_t>(),
                     .count = count,
                     .limit = integers(batch.limit),
                     .often = integers(batch.often),
                     .given = integers(batch.scores),
                     .allowed = bytes_of(batch.allowed),
                     .score = options_.score,
                     .now = batch.step.value_or(calls_),
                     .call = static_cast<uint32_t>(calls_),
                     .evict = options_.evict,
                     .in_order = options_.in_order,
                     .evicted = evicted,
                     .slots = result.slots.mutable_data_ptr<int64_t>(),
                     .states = result.states.mutable_data_ptr<uint8_t>(),
                     .leaders = batch.repeated ? leaders.mutable_data_ptr<int64_t>() : nullptr,
                     .claims = batch.repeated ? claims.mutable_data_ptr<int32_t>() : nullptr,
                     .claimed = batch.repeated ? claimed.mutable_data_ptr<uint8_t>() : nullptr},
          options_.device);
  if (list) {
    at::Tensor listed = storage_.counters.slice(0, op::kListed, op::kCounters);
    result.evicted_count = listed.clone();
    listed.copy_(kept_count);
    if (cache_) {
      evicted_slots = cache_->places(result.evicted_ids, result.evicted_count, evicted_slots);
    }
    // The rows with their state, before others are put there.
    if (batch.list) result.evicted_rows = read_rows(evicted_slots);
    if (cache_) cache_->erase(result.evicted_ids, result.evicted_count, {});
    if (!batch.list) list_evicted(result);
  }
  if (width() == 0) return result;
  op::run(op::InitializeRows{.rows = view_of(values_),
                             .init = options_.init,
                             .ids = batch.ids.const_data_ptr<int64_t>(),
                             .slots = result.slots.const_data_ptr<int64_t>(),
                             .states = result.states.const_data_ptr<uint8_t>(),
                             .state = op::kInserted,
                             .count = count,
                             .limit = integers(batch.limit)},
          options_.device);
  if (batch.repeated) result.slots = result.slots.index_select(0, leaders);
  if (cache_) result.slots = cache_->bring(batch.ids, batch.limit, result.slots, view_of(values_));
  return result;
}

// Adds the evicted ids of a batch to those kept for take_evicted().
void HashTable::list_evicted(const Inserted& batch) {
  at::Tensor listed = storage_.counters.slice(0, op::kListed, op::kCounters);
  if (evicted_ids_.defined()) {
    const at::Tensor index = at::arange(batch.evicted_ids.numel(), batch.evicted_ids.options());
    const at::Tensor place = index + listed;
    const at::Tensor kept =
        index.lt(batch.evicted_count).logical_and(place.lt(options_.list_evicted));
    const at::Tensor where = place.masked_fill(kept.logical_not(), options_.list_evicted);
    evicted_ids_.scatter_(0, where, batch.evicted_ids);
    evicted_scores_.scatter_(0, where, batch.evicted_scores);
  }
  listed.add_(batch.evicted_count);
}

void HashTable::erase(const at::Tensor& ids, const at::Tensor& limit, const at::Tensor& allowed) {
  ++changes_;
  if (cache_) cache_->erase(ids, limit, allowed);
  op::run(op::Erase{.table = storage_.view(),
                    .keys = ids.const_data_ptr<int64_t>(),
                    .count = ids.numel(),
                    .limit = integers(limit),
                    .allowed = bytes_of(allowed)},
          options_.device);
}

void HashTable::clear() {
  ++changes_;
  storage_.digests.zero_();
  storage_.touched.zero_();
  storage_.counters.zero_();
  if (cache_) cache_->clear();
  size_at_most_ = 0;
}

at::Tensor HashTable::scores_of(const at::Tensor& slots) const {
  const at::Tensor places = cache_ ? cache_->homes(slots) : slots;
  return storage_.scores.index_select(0, places.clamp_min(0)).mul_(places.ge(0));
}

at::Tensor HashTable::gather(const at::Tensor& slots, const at::Tensor& index,
                             const at::Tensor& missing) const {
  const int64_t count = index.defined() ? index.numel() : slots.numel();
  at::Tensor out = at::empty({count, options_.dim}, floats());
  op::run(op::GatherRows{.rows = view(),
                         .slots = slots.const_data_ptr<int64_t>(),
                         .index = integers(index),
                         .count = count,
                         .missing = missing.const_data_ptr<float>(),
                         .out = out.mutable_data_ptr<float>()},
          options_.device);
  return out;
}

at::Tensor HashTable::look_up(const at::Tensor& ids, const at::Tensor& missing,
                              const at::Tensor& unknown) const {
  if (cache_) {
    const at::Tensor slots = find(ids);
    unknown.add_(slots.lt(0).sum());
    return gather(slots, {}, missing);
  }
  at::Tensor out = at::empty({ids.numel(), options_.dim}, floats());
  op::run(op::FindRows{.table = storage_.view(),
                       .rows = view(),
                       .keys = ids.const_data_ptr<int64_t>(),
                       .count = ids.numel(),
                       .missing = missing.const_data_ptr<float>(),
                       .out = out.mutable_data_ptr<float>(),
                       .unknown = unknown.mutable_data_ptr<int64_t>()},
          options_.device);
  return out;
}

void HashTable::update(const op::RowUpdate& update, const at::Tensor& slots,
                       const at::Tensor& gradients, const at::Tensor& limit,
                       const op::StepNumbers& step) {
  op::run(op::UpdateRows{.rows = view(),
                         .update = update,
                         .slots = slots.const_data_ptr<int64_t>(),
                         .gradients = gradients.const_data_ptr<float>(),
                         .count = slots.numel(),
                         .limit = integers(limit),
                         .step = step},
          options_.device);
}

HashTableCounts HashTable::counts() const {
  const at::Tensor counters = storage_.counters.cpu();
  const int64_t* count = counters.const_data_ptr<int64_t>();
  return {.size = count[op::kSize],
          .failed = count[op::kFailed],
          .evicted = count[op::kEvicted],
          .early = count[op::kEarly]};
}

// A table takes as many ids as its capacity, so it grows when that may not suffice. Its size, and how
// many ids the batch has (limit), are read only when those of all inserts since could fill it.
void HashTable::make_room(int64_t ids, const at::Tensor& limit) {
  if (capacity() == options_.capacity) return;
  size_at_most_ += ids;
  if (size_at_most_ <= capacity()) return;
  if (limit.defined()) ids = std::min(ids, limit.item<int64_t>());
  size_at_most_ = size() + ids;
  if (size_at_most_ <= capacity()) return;
  grow(std::min(options_.capacity, std::max(2 * capacity(), size_at_most_)));
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
  // Nothing of the table changes until all memory is there.
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
  if (cache_) cache_->clear();  // all rows are at home now
}

HashTable::EvictedIds HashTable::take_evicted() {
  EvictedIds taken;
  at::Tensor listed = storage_.counters[op::kListed];
  const int64_t count = listed.item<int64_t>();
  listed.zero_();
  const int64_t kept = std::min(count, options_.list_evicted);
  taken.left_out = count - kept;
  if (!evicted_ids_.defined()) {
    taken.ids = at::empty({0}, storage_.keys.options());
    taken.scores = at::empty({0}, storage_.keys.options());
    return taken;
  }
  taken.ids = evicted_ids_.slice(0, 0, kept).clone();
  taken.scores = evicted_scores_.slice(0, 0, kept).clone();
  return taken;
}

}  // namespace seqfuse::embeddings
