// Contents of hash tables: taken out, and put back.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "embeddings/dynamic/hash_table.h"

namespace seqfuse::embeddings {

// Puts ids into an empty table where they were before.
void HashTable::place(const at::Tensor& ids, const at::Tensor& slots, const at::Tensor& scores) {
  const int64_t count = ids.numel();
  SEQFUSE_CHECK_AS(DataError, std::get<0>(at::_unique2(slots)).numel() == count,
                   "table {}: two ids are said to be in the same slot: the slots are damaged",
                   options_.name);
  at::Tensor digests = at::empty({count}, at::TensorOptions(at::kByte));
  const at::Tensor host_ids = ids.cpu(), host_slots = slots.cpu();
  const int64_t* id = host_ids.const_data_ptr<int64_t>();
  const int64_t* slot = host_slots.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    const auto may = ops::hash_table::place_of(id[i], storage_.buckets);
    const int64_t bucket = slot[i] < 0 ? -1 : slot[i] / ops::hash_table::kSlots;
    SEQFUSE_CHECK_AS(DataError, bucket == may.bucket[0] || bucket == may.bucket[1],
                     "table {}: id {} is said to be in slot {}, where it cannot be: the slots are "
                     "damaged",
                     options_.name, id[i], slot[i]);
    digests.mutable_data_ptr<uint8_t>()[i] = may.digest;
  }
  storage_.digests.index_copy_(0, slots, digests.to(options_.device));
  storage_.keys.index_copy_(0, slots, ids);
  storage_.scores.index_copy_(0, slots, scores);
  storage_.counters[ops::hash_table::kSize].fill_(count);
}

HashTableContents HashTable::contents() const {
  HashTableContents contents;
  contents.slots = storage_.digests.nonzero().flatten();
  contents.ids = storage_.keys.index_select(0, contents.slots);
  contents.scores = storage_.scores.index_select(0, contents.slots);
  contents.touched = storage_.touched.index_select(0, contents.slots);
  contents.rows = rows().index_select(0, contents.slots);
  contents.capacity = capacity();
  contents.calls = calls_;
  return contents;
}

void HashTable::load(const HashTableContents& given) {
  const int64_t count = given.size();
  SEQFUSE_CHECK_AS(DataError, count <= options_.capacity,
                   "table {}: {} rows are given, but its capacity is {}: raise the capacity",
                   options_.name, count, options_.capacity);
  SEQFUSE_CHECK_AS(
      DataError,
      count == 0 ||
          (given.rows.dim() == 2 && given.rows.size(0) == count && given.rows.size(1) == width()),
      "table {}: rows are [{}, {}], expected [{}, {}]: {} weights and {} numbers of the "
      "optimiser",
      options_.name, given.rows.size(0), given.rows.dim() == 2 ? given.rows.size(1) : 0, count,
      width(), options_.dim, options_.state);
  const auto here = [&](const at::Tensor& tensor, at::ScalarType type) {
    return tensor.to(options_.device, type).contiguous();
  };
  const bool same_slots =
      given.slots.defined() && given.capacity >= 1 && given.capacity <= options_.capacity;
  const int64_t allocated =
      same_slots ? given.capacity
                 : std::min(options_.capacity, std::max(count, options_.initial_capacity));
  HashTableOptions options = options_;
  options.initial_capacity = std::max<int64_t>(1, allocated);
  HashTable loaded(std::move(options));
  if (count > 0) {
    const at::Tensor ids = here(given.ids, at::kLong);
    const int64_t different = std::get<0>(at::_unique2(ids)).numel();
    SEQFUSE_CHECK_AS(DataError, different == count,
                     "table {}: {} of the {} ids given are there twice", options_.name,
                     count - different, count);
    const at::Tensor scores =
        given.scores.defined() ? here(given.scores, at::kLong) : at::zeros_like(ids);
    const at::Tensor touched = given.touched.defined()
                                   ? here(given.touched, at::kInt)
                                   : at::zeros({count}, ids.options().dtype(at::kInt));
    at::Tensor slots;
    if (same_slots) {
      slots = here(given.slots, at::kLong);
      loaded.place(ids, slots, scores);
    } else {
      slots = insert_scored(loaded.storage_, ids, scores);
      SEQFUSE_CHECK_AS(DataError, loaded.counts().failed == 0,
                       "table {}: {} of {} rows found no place: raise the capacity, which is {}",
                       options_.name, loaded.counts().failed, count, options_.capacity);
    }
    loaded.storage_.touched.index_copy_(0, slots, touched);
    loaded.rows().index_copy_(0, slots, here(given.rows, at::kFloat));
  }
  storage_ = std::move(loaded.storage_);
  values_ = std::move(loaded.values_);
  calls_ = std::max(calls_, given.calls);
  ++changes_;
  size_at_most_ = count;
}

}  // namespace seqfuse::embeddings
