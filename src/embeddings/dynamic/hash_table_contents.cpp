// Contents of hash tables: taken out, and put back.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "embeddings/dynamic/hash_table.h"

namespace seqfuse::embeddings {
namespace {

constexpr int64_t kReadBytes = int64_t{64} << 20;  // of rows read at a time

}  // namespace

HashTableContents HashTable::contents(int64_t since) const {
  HashTableContents contents = keys(since);
  contents.rows = rows_of(contents.ids, contents.slots);
  return contents;
}

at::Tensor HashTable::rows_of(const at::Tensor& given, const at::Tensor& slots) const {
  const at::Tensor homes = slots.to(options_.device);
  const at::Tensor places = cache_ ? cache_->places(given.to(options_.device), {}, homes) : homes;
  const int64_t count = homes.numel();
  at::Tensor rows = at::empty({count, width()}, at::kFloat);
  const int64_t block = std::max<int64_t>(1, kReadBytes / std::max<int64_t>(1, 4 * width()));
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t end = std::min(count, begin + block);
    rows.slice(0, begin, end).copy_(read_rows(places.slice(0, begin, end)));
  }
  return rows;
}

at::Tensor HashTable::rows_in_slots(int64_t begin, int64_t end) const {
  at::Tensor places = at::arange(begin, end, storage_.keys.options());
  if (cache_) {
    // The cache may have a row of an id that an empty slot had.
    const at::Tensor used = storage_.digests.slice(0, begin, end).ne(0);
    places =
        at::where(used, cache_->places(storage_.keys.slice(0, begin, end).contiguous(), {}, places),
                  places + cache_->slots());
  }
  return read_rows(places);
}

HashTableContents HashTable::keys(int64_t since) const {
  HashTableContents contents;
  at::Tensor there = storage_.digests.ne(0);
  if (since > 0) {
    const at::Tensor calls = storage_.touched.to(at::kLong).bitwise_and(0xFFFFFFFF);
    there = there.logical_and(calls.ge(since));
  }
  const at::Tensor homes = there.nonzero().flatten();
  contents.slots = homes.cpu();
  contents.ids = storage_.keys.index_select(0, homes).cpu();
  contents.scores = storage_.scores.index_select(0, homes).cpu();
  contents.touched = storage_.touched.index_select(0, homes).cpu();
  contents.capacity = capacity();
  contents.calls = calls_;
  return contents;
}

// Whether rows return to their former slots.
bool HashTable::keeps_slots(const HashTableContents& given) const {
  return given.slots.defined() && given.capacity >= std::max<int64_t>(1, given.size()) &&
         given.capacity <= options_.capacity;
}

// uint8 [n] on the CPU, the digests of the ids; undefined if their slots are not kept.
at::Tensor HashTable::checked_digests(const HashTableContents& given) const {
  const int64_t count = given.size();
  SEQFUSE_CHECK_AS(DataError, count <= options_.capacity,
                   "table {}: {} rows are given, but its capacity is {}: raise the capacity",
                   options_.name, count, options_.capacity);
  SEQFUSE_CHECK_AS(
      DataError,
      !given.ids.defined() || (given.ids.dim() == 1 && given.ids.scalar_type() == at::kLong),
      "table {}: the ids are {} {}; expected int64 [n]", options_.name,
      toString(given.ids.scalar_type()), c10::str(given.ids.sizes()));
  const std::pair<const char*, const at::Tensor*> parts[] = {
      {"scores", &given.scores}, {"touched", &given.touched}, {"slots", &given.slots}};
  for (const auto& [part, tensor] : parts) {
    SEQFUSE_CHECK_AS(DataError, !tensor->defined() || tensor->numel() == count,
                     "table {}: {} has {} numbers for {} ids: the contents are damaged",
                     options_.name, part, tensor->numel(), count);
  }
  if (count == 0) return {};
  SEQFUSE_CHECK_AS(DataError, given.rows.defined(), "table {}: {} ids are given without rows",
                   options_.name, count);
  SEQFUSE_CHECK_AS(DataError, given.rows.sizes() == at::IntArrayRef({count, width()}),
                   "table {}: rows are {}, expected [{}, {}]: {} weights and {} numbers of the "
                   "optimiser",
                   options_.name, c10::str(given.rows.sizes()), count, width(), options_.dim,
                   options_.state);
  const int64_t different = std::get<0>(at::_unique2(given.ids)).numel();
  SEQFUSE_CHECK_AS(DataError, different == count,
                   "table {}: {} of the {} ids given are there twice", options_.name,
                   count - different, count);
  return keeps_slots(given) ? checked_slots(given) : at::Tensor();
}

at::Tensor HashTable::checked_slots(const HashTableContents& given) const {
  const int64_t count = given.size(), buckets = ops::hash_table::buckets_for(given.capacity);
  const at::Tensor ids = given.ids.cpu().contiguous(),
                   slots = given.slots.to(at::kCPU, at::kLong).contiguous();
  SEQFUSE_CHECK_AS(DataError, std::get<0>(at::_unique2(slots)).numel() == count,
                   "table {}: two ids are said to be in the same slot: the slots are damaged",
                   options_.name);
  at::Tensor digests = at::empty({count}, at::TensorOptions(at::kByte));
  const int64_t* id = ids.const_data_ptr<int64_t>();
  const int64_t* slot = slots.const_data_ptr<int64_t>();
  uint8_t* digest = digests.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < count; ++i) {
    const auto may = ops::hash_table::place_of(id[i], buckets);
    const int64_t bucket = slot[i] < 0 ? -1 : slot[i] / ops::hash_table::kSlots;
    SEQFUSE_CHECK_AS(DataError, bucket == may.bucket[0] || bucket == may.bucket[1],
                     "table {}: id {} is said to be in slot {}, where it cannot be: the slots are "
                     "damaged",
                     options_.name, id[i], slot[i]);
    digest[i] = may.digest;
  }
  return digests;
}

HashTable HashTable::with(const HashTableContents& given) const {
  const at::Tensor digests = checked_digests(given);
  const int64_t count = given.size();
  const auto here = [&](const at::Tensor& tensor, at::ScalarType type) {
    return tensor.to(options_.device, type).flatten().contiguous();
  };
  HashTableOptions options = options_;
  options.initial_capacity =
      keeps_slots(given) ? given.capacity
                         : std::min(options_.capacity, std::max(count, options_.initial_capacity));
  HashTable loaded(std::move(options));
  loaded.size_at_most_ = count;
  loaded.calls_ = std::max(calls_, given.calls);
  if (count == 0) return loaded;
  const at::Tensor ids = here(given.ids, at::kLong);
  const at::Tensor scores =
      given.scores.defined() ? here(given.scores, at::kLong) : at::zeros_like(ids);
  at::Tensor slots;
  if (digests.defined()) {
    slots = here(given.slots, at::kLong);
    loaded.storage_.digests.index_copy_(0, slots, here(digests, at::kByte));
    loaded.storage_.keys.index_copy_(0, slots, ids);
    loaded.storage_.scores.index_copy_(0, slots, scores);
    loaded.storage_.counters[ops::hash_table::kSize].fill_(count);
  } else {
    slots = insert_scored(loaded.storage_, ids, scores);
    SEQFUSE_CHECK_AS(DataError, loaded.counts().failed == 0,
                     "table {}: {} of {} rows found no place: raise the capacity, which is {}",
                     options_.name, loaded.counts().failed, count, options_.capacity);
  }
  if (given.touched.defined()) {
    const at::Tensor touched = here(given.touched, at::kInt);
    loaded.storage_.touched.index_copy_(0, slots, touched);
    // An insert must not have the number of an earlier one: the rows of that one would not be evicted.
    const int64_t last = touched.to(at::kLong).bitwise_and(0xFFFFFFFF).max().item<int64_t>();
    loaded.calls_ = std::max(loaded.calls_, last);
  } else {
    loaded.storage_.touched.index_fill_(0, slots, 0);
  }
  loaded.copy_in(loaded.values_, slots, given.rows);
  return loaded;
}

void HashTable::shrink() {
  HashTableOptions options = options_;
  options.initial_capacity = 1;
  HashTable small(std::move(options));
  small.calls_ = calls_;
  take(std::move(small));
}

void HashTable::take(HashTable loaded) {
  storage_ = std::move(loaded.storage_);
  values_ = std::move(loaded.values_);
  cache_ = std::move(loaded.cache_);
  calls_ = loaded.calls_;
  size_at_most_ = loaded.size_at_most_;
  ++changes_;
  ++moves_;
}

}  // namespace seqfuse::embeddings
