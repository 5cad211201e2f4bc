#include "embeddings/dynamic/hash_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

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

HashTable::HashTable(HashTableOptions options)
    : options_(checked(std::move(options))),
      stride_((width() + kVectorFloats - 1) / kVectorFloats * kVectorFloats),
      storage_(allocate(options_.initial_capacity)),
      values_(allocate_rows(storage_)) {
  options_.device = values_.device();  // with its number
  const auto integer = at::TensorOptions().device(options_.device).dtype(at::kLong);
  if (options_.list_evicted > 0) {
    evicted_ids_ = at::empty({options_.list_evicted}, integer);
    evicted_scores_ = at::empty_like(evicted_ids_);
  }
}

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

Storage HashTable::allocate(int64_t capacity) const {
  return with_memory(capacity, [&] { return Storage(capacity, options_.device); });
}

at::Tensor HashTable::allocate_rows(const Storage& storage) const {
  const auto floats = at::TensorOptions().device(options_.device).dtype(at::kFloat);
  return with_memory(storage.capacity,
                     [&] { return at::zeros({storage.slots(), stride_}, floats); });
}

int64_t HashTable::bytes() const {
  return static_cast<int64_t>(values_.nbytes() + storage_.digests.nbytes() +
                              storage_.keys.nbytes() + storage_.scores.nbytes() +
                              storage_.touched.nbytes());
}

at::Tensor HashTable::rows() const {
  return values_.slice(1, 0, width());
}

op::Rows HashTable::row_view(const at::Tensor& values) const {
  return {.values = values.mutable_data_ptr<float>(),
          .stride = stride_,
          .dim = options_.dim,
          .width = width()};
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
  return slots;
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
  if (batch.list) {
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
                     .states = result.states.mutable_data_ptr<uint8_t>()},
          options_.device);
  if (batch.list) {
    at::Tensor listed = storage_.counters.slice(0, op::kListed, op::kCounters);
    result.evicted_count = listed.clone();
    listed.copy_(kept_count);
    result.evicted_rows = at::zeros({count, width()}, values_.options());
    // The rows with their state, before others are put there.
    op::Rows whole = row_view(values_);
    whole.dim = width();
    const at::Tensor nothing = at::zeros({width()}, values_.options());
    op::run(op::GatherRows{.rows = whole,
                           .slots = evicted_slots.const_data_ptr<int64_t>(),
                           .index = nullptr,
                           .count = count,
                           .missing = nothing.const_data_ptr<float>(),
                           .out = result.evicted_rows.mutable_data_ptr<float>()},
            options_.device);
  }
  if (width() == 0) return result;
  op::run(op::InitializeRows{.rows = row_view(values_),
                             .init = options_.init,
                             .ids = batch.ids.const_data_ptr<int64_t>(),
                             .slots = result.slots.const_data_ptr<int64_t>(),
                             .states = result.states.const_data_ptr<uint8_t>(),
                             .state = op::kInserted,
                             .count = count,
                             .limit = integers(batch.limit)},
          options_.device);
  return result;
}

void HashTable::erase(const at::Tensor& ids, const at::Tensor& limit, const at::Tensor& allowed) {
  ++changes_;
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
  size_at_most_ = 0;
}

at::Tensor HashTable::scores_of(const at::Tensor& slots) const {
  return storage_.scores.index_select(0, slots.clamp_min(0)).mul_(slots.ge(0));
}

at::Tensor HashTable::gather(const at::Tensor& slots, const at::Tensor& index,
                             const at::Tensor& missing) const {
  const int64_t count = index.defined() ? index.numel() : slots.numel();
  at::Tensor out = at::empty({count, options_.dim}, values_.options());
  op::run(op::GatherRows{.rows = row_view(values_),
                         .slots = slots.const_data_ptr<int64_t>(),
                         .index = integers(index),
                         .count = count,
                         .missing = missing.const_data_ptr<float>(),
                         .out = out.mutable_data_ptr<float>()},
          options_.device);
  return out;
}

void HashTable::update(const op::RowUpdate& update, const at::Tensor& slots,
                       const at::Tensor& gradients, const at::Tensor& limit,
                       const op::StepNumbers& step) {
  op::run(op::UpdateRows{.rows = row_view(values_),
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
  const at::Tensor values = allocate_rows(larger);
  const at::Tensor from = storage_.digests.nonzero().flatten();
  const at::Tensor ids = storage_.keys.index_select(0, from),
                   scores = storage_.scores.index_select(0, from);
  const at::Tensor to = insert_scored(larger, ids, scores);
  SEQFUSE_CHECK(larger.counters[op::kFailed].item<int64_t>() == 0,
                "table {}: not all of {} ids found a place in a table of {} rows while it grew",
                options_.name, ids.numel(), capacity);
  larger.touched.index_copy_(0, to, storage_.touched.index_select(0, from));
  const int64_t row_bytes = std::max<int64_t>(1, stride_ * 4);  // a table may have ids alone
  const int64_t block = std::max<int64_t>(1, kRowsBlockBytes / row_bytes);
  for (int64_t begin = 0; begin < from.numel(); begin += block) {
    const int64_t end = std::min(from.numel(), begin + block);
    values.index_copy_(0, to.slice(0, begin, end),
                       values_.index_select(0, from.slice(0, begin, end)));
  }
  larger.counters.copy_(storage_.counters);
  storage_ = std::move(larger);
  values_ = values;
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
