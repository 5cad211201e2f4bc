#include "embeddings/dynamic/dynamic_rows.h"

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"

namespace seqfuse::embeddings {
namespace {

using ops::hash_table::unique_ids;

DynamicRowsOptions with_state(DynamicRowsOptions options) {
  SEQFUSE_CHECK_AS(UsageError, options.table.dim >= 1,
                   "table {}: a row has {} weights; expected at least 1", options.table.name,
                   options.table.dim);
  SEQFUSE_CHECK_AS(UsageError, options.admit_from >= 1,
                   "table {}: ids are admitted from their occurrence {}; expected at least 1",
                   options.table.name, options.admit_from);
  SEQFUSE_CHECK_AS(UsageError, options.counted_ids >= 0,
                   "table {}: the frequency of {} ids is counted; expected 0 or more",
                   options.table.name, options.counted_ids);
  if (options.counted_ids == 0) options.counted_ids = options.table.capacity;
  options.table.state = ops::hash_table::state_length(options.optimizer, options.table.dim);
  return options;
}

// Contents of frequencies, which have no rows, as those of a table with rows of no weights.
HashTableContents with_empty_rows(HashTableContents counted) {
  counted.rows = at::zeros({counted.size(), 0}, at::kFloat);
  return counted;
}

// Frequencies of ids without a row.
HashTableOptions counter_options(const DynamicRowsOptions& options) {
  HashTableOptions counted;
  counted.name = options.table.name + " (frequencies)";
  counted.capacity = options.counted_ids;
  counted.initial_capacity = options.table.initial_capacity;
  counted.score = Score::lfu;
  counted.in_order = options.table.in_order;
  counted.device = options.table.device;
  return counted;
}

// The initial row of an id that no batch has: of another seed.
at::Tensor make_shared_row(const HashTableOptions& options) {
  RowInit init = options.init;
  init.seed = ops::hash_table::mix(init.seed + 1);
  at::Tensor row = at::empty({options.dim}, at::kFloat);
  float* values = row.mutable_data_ptr<float>();
  for (int64_t c = 0; c < options.dim; ++c) {
    values[c] = ops::hash_table::initial_value(init, 0, c);
  }
  return row.to(options.device);
}

}  // namespace

DynamicRows::DynamicRows(DynamicRowsOptions options)
    : options_(with_state(std::move(options))),
      table_(options_.table),
      shared_row_(make_shared_row(options_.table)),
      unknown_(at::zeros({1}, shared_row_.options().dtype(at::kLong))) {
  options_.table.device = table_.options().device;
  if (options_.admit_from > 1) counted_.emplace(counter_options(options_));
  if (options_.table.cached) side_ = std::make_unique<SideStream>(options_.table.device);
}

DynamicRows::Batch DynamicRows::find(const at::Tensor& ids, const at::Tensor& times) {
  join();
  Batch batch{.unique = unique_ids(ids.contiguous(), times), .slots = {}};
  batch.slots = table_.find(batch.unique.ids, batch.unique.limit);
  batch.changes = table_.changes();
  unknown_.add_(batch.unique.often.mul(batch.slots.lt(0)).sum());
  return batch;
}

// uint8 [unique]: the ids that get a row if they have none. Counts the others. often: for ids that get
// one, how often they have been there in all.
at::Tensor DynamicRows::admitted(const Batch& batch, at::Tensor& often) {
  const at::Tensor &ids = batch.unique.ids, &limit = batch.unique.limit;
  const at::Tensor missing = table_.find(ids, limit).lt(0);
  const auto counted = counted_->insert(
      {.ids = ids, .limit = limit, .often = often, .allowed = missing.to(at::kByte)});
  const at::Tensor total = counted_->scores_of(counted.slots);
  const at::Tensor admitted = missing.logical_and(total.ge(options_.admit_from));
  const at::Tensor allowed = admitted.to(at::kByte);
  counted_->erase(ids, limit, allowed);
  often = at::where(admitted, total, often);
  return allowed;
}

DynamicRows::Batch DynamicRows::fetch(const at::Tensor& ids, const Scores& scores) {
  table_.check_scores(scores.custom.defined(), scores.step.has_value());
  SEQFUSE_CHECK_AS(UsageError, !scores.custom.defined() || scores.custom.numel() == ids.numel(),
                   "table {}: {} scores are given with {} ids; expected one for each",
                   options_.table.name, scores.custom.numel(), ids.numel());
  SEQFUSE_CHECK_AS(UsageError,
                   !scores.custom.defined() || at::isIntegralType(scores.custom.scalar_type(),
                                                                  /*includeBool=*/false),
                   "table {}: scores are {}; expected integers, since fractions would be cut off: "
                   "scale and round them",
                   options_.table.name, toString(scores.custom.scalar_type()));
  join();
  Batch batch{.unique = unique_ids(ids.contiguous(), scores.times), .slots = {}};
  HashTable::Insert insert{.ids = batch.unique.ids,
                           .limit = batch.unique.limit,
                           .often = batch.unique.often,
                           .step = scores.step};
  if (scores.custom.defined()) {
    insert.scores =
        at::full_like(batch.unique.ids, std::numeric_limits<int64_t>::min())
            .scatter_reduce_(0, batch.unique.inverse,
                             scores.custom.to(options_.table.device, at::kLong).flatten(), "amax");
  }
  if (counted_) insert.allowed = admitted(batch, insert.often);
  batch.slots = table_.insert(insert).slots;
  batch.changes = table_.changes();
  if (options_.failure_is_error) failures_.after_insert(table_);
  return batch;
}

DynamicRows::Batch DynamicRows::fetch_each(const at::Tensor& ids, const Scores& scores) {
  if (!table_.takes_repeated() || counted_) return fetch(ids, scores);
  table_.check_scores(scores.custom.defined(), scores.step.has_value());
  join();
  Batch batch{.unique = {}, .slots = {}, .each = ids.flatten().contiguous()};
  HashTable::Insert insert{.ids = batch.each, .step = scores.step};
  insert.repeated = true;
  batch.slots = table_.insert(insert).slots;
  batch.changes = table_.changes();
  if (options_.failure_is_error) failures_.after_insert(table_);
  return batch;
}

void DynamicRows::prefetch(const std::function<at::Tensor()>& ids, bool after_all) {
  if (!options_.table.cached) return;
  if (after_all) join();
  side_->run([&] {
    const at::Tensor given = ids();
    side_->keep(given);
    const ops::hash_table::UniqueIds unique = unique_ids(given.contiguous());
    table_.bring_into_cache(unique.ids, unique.limit);
  });
}

at::Tensor DynamicRows::look_up(const at::Tensor& ids) {
  join();
  return table_.look_up(ids.flatten().contiguous(), shared_row_, unknown_);
}

// Slots of a batch; of places in a cache that have changed since, those of now.
at::Tensor DynamicRows::slots_of(const Batch& batch) const {
  if (batch.changes == table_.changes()) return batch.slots;
  return batch.each.defined() ? table_.find(batch.each)
                              : table_.find(batch.unique.ids, batch.unique.limit);
}

at::Tensor DynamicRows::rows(const Batch& batch) const {
  join();
  const at::Tensor rows = table_.gather(
      slots_of(batch), batch.each.defined() ? at::Tensor() : batch.unique.inverse, shared_row_);
  mark();
  return rows;
}

at::Tensor DynamicRows::unique_rows(const Batch& batch) const {
  join();
  const at::Tensor rows = table_.gather(slots_of(batch), {}, shared_row_);
  mark();
  return rows;
}

void DynamicRows::update(const RowUpdate& update, const Batch& batch, const at::Tensor& gradients) {
  join();
  if (batch.each.defined()) {
    // Slots stand for ids; those of ids without a row are -1, and left out.
    const auto slots = unique_ids(slots_of(batch));
    const at::Tensor sums = ops::hash_table::sum_by_id(slots, gradients, /*zeros=*/false);
    table_.update(update, slots.ids, sums, slots.limit);
    return;
  }
  update_unique(update, batch,
                ops::hash_table::sum_by_id(batch.unique, gradients, /*zeros=*/false));
}

void DynamicRows::update_unique(const RowUpdate& update, const Batch& batch,
                                const at::Tensor& gradients,
                                const ops::hash_table::StepNumbers& step) {
  join();
  table_.update(update, slots_of(batch), gradients.to(at::kFloat).contiguous(), batch.unique.limit,
                step);
}

int64_t DynamicRows::unknown() const {
  return unknown_.item<int64_t>();
}

void DynamicRows::check_failures() const {
  if (options_.failure_is_error) failures_.check(table_);
}

DynamicRowsContents DynamicRows::contents(int64_t since) const {
  check_failures();
  join();
  DynamicRowsContents contents{
      .table = table_.contents(since), .counted = {}, .shared_row = shared_row_.cpu().clone()};
  if (counted_) contents.counted = counted_->contents();
  return contents;
}

void DynamicRows::start_snapshot() {
  join();
  if (!side_) side_ = std::make_unique<SideStream>(options_.table.device);
  snapshot_.emplace(table_);
}

bool DynamicRows::copy_snapshot(int64_t slots) {
  SEQFUSE_CHECK(snapshot_, "table {}: copy of a snapshot that was not started",
                options_.table.name);
  bool more = false;
  side_->run([&] { more = snapshot_->copy(table_, slots); });
  return more;
}

DynamicRows::Snapshot DynamicRows::finish_snapshot() {
  SEQFUSE_CHECK(snapshot_, "table {}: end of a snapshot that was not started", options_.table.name);
  check_failures();
  join();
  Snapshot snapshot{.table = snapshot_->finish(table_), .others = {}};
  snapshot.others.shared_row = shared_row_.cpu().clone();
  if (counted_) snapshot.others.counted = counted_->contents();
  snapshot_.reset();
  return snapshot;
}

void DynamicRows::clear() {
  join();
  table_.clear();
  if (counted_) counted_->clear();
  unknown_.zero_();
  failures_.restart();
}

void DynamicRows::check_sizes(const DynamicRowsContents& contents) const {
  const at::Tensor& shared = contents.shared_row;
  SEQFUSE_CHECK_AS(DataError, !shared.defined() || shared.sizes() == shared_row_.sizes(),
                   "table {}: the shared row is {}; expected [{}]", options_.table.name,
                   c10::str(shared.sizes()), options_.table.dim);
  SEQFUSE_CHECK_AS(DataError, !counted_ || contents.counted.size() <= options_.counted_ids,
                   "table {}: frequencies of {} ids are given, but those of {} are counted: raise "
                   "counted_ids",
                   options_.table.name, contents.counted.size(), options_.counted_ids);
}

void DynamicRows::check(const DynamicRowsContents& contents) const {
  check_sizes(contents);
  table_.check(contents.table);
  if (counted_) counted_->check(with_empty_rows(contents.counted));
}

void DynamicRows::load(const DynamicRowsContents& contents) {
  check_sizes(contents);
  join();
  if (table_.size() == 0) {
    table_.check(contents.table);
    table_.shrink();
  }
  HashTable table = table_.with(contents.table);
  std::optional<HashTable> counted;
  if (counted_) counted.emplace(counted_->with(with_empty_rows(contents.counted)));
  at::Tensor shared = shared_row_;
  if (contents.shared_row.defined()) {
    shared = contents.shared_row.detach().to(shared_row_.options(), /*non_blocking=*/false,
                                             /*copy=*/true);
  }
  table_.take(std::move(table));
  if (counted) counted_->take(std::move(*counted));
  shared_row_ = std::move(shared);
  failures_.restart();
}

}  // namespace seqfuse::embeddings
