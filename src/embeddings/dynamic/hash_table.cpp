#include "embeddings/dynamic/hash_table.h"

#include <algorithm>

#include "base/error.h"

namespace seqfuse::embeddings {
namespace {

namespace op = ops::hash_table;

constexpr int64_t kRowsBlockBytes = int64_t{64} << 20;  // copied at a time while growing

const int64_t* integers(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<int64_t>() : nullptr;
}
const uint8_t* bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<uint8_t>() : nullptr;
}

}  // namespace

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

// Slots in storage_ and values_, whether or not a row is also in the cache.
at::Tensor HashTable::homes_of(const at::Tensor& ids, const at::Tensor& limit) const {
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

at::Tensor HashTable::find(const at::Tensor& ids, const at::Tensor& limit) const {
  const at::Tensor homes = homes_of(ids, limit);
  return cache_ ? cache_->places(ids, limit, homes) : homes;
}

void HashTable::bring_into_cache(const at::Tensor& ids, const at::Tensor& limit) {
  if (!cache_) return;
  ++changes_;
  cache_->bring(ids, limit, homes_of(ids, limit), view_of(values_));
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
    ++moves_;  // what `touched` says of rows is no longer true
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
  ++moves_;
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
