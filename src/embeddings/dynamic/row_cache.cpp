#include "embeddings/dynamic/row_cache.h"

namespace seqfuse::embeddings {

namespace op = ops::hash_table;

namespace {

const int64_t* limit_of(const at::Tensor& limit) {
  return limit.defined() ? limit.const_data_ptr<int64_t>() : nullptr;
}

}  // namespace

RowCache::RowCache(int64_t capacity, int64_t stride, at::Device device, bool in_order)
    : device_(device), in_order_(in_order), keys_(capacity, device) {
  const auto options = at::TensorOptions().device(device);
  values_ = at::zeros({slots(), stride}, options.dtype(at::kFloat));
  homes_ = at::full({slots() + 1}, -1, options.dtype(at::kLong));
}

int64_t RowCache::bytes() const {
  return static_cast<int64_t>(values_.nbytes() + homes_.nbytes() + keys_.digests.nbytes() +
                              keys_.keys.nbytes() + keys_.scores.nbytes() + keys_.touched.nbytes());
}

op::Rows RowCache::rows(const op::Rows& home) const {
  return {.values = values_.mutable_data_ptr<float>(),
          .stride = home.stride,
          .dim = home.dim,
          .width = home.width,
          .others = home.others,
          .split = slots()};
}

at::Tensor RowCache::bring(const at::Tensor& ids, const at::Tensor& limit, const at::Tensor& homes,
                           const op::Rows& home) {
  const int64_t count = ids.numel();
  if (static_cast<uint32_t>(++calls_) == 0) {  // the numbers in `touched` start again
    keys_.touched.zero_();
    ++calls_;
  }
  const at::Tensor allowed = homes.ge(0).to(at::kByte);
  const at::Tensor slots = at::full_like(ids, -1), left = at::full_like(ids, -1);
  const at::Tensor left_ids = at::empty_like(ids), left_scores = at::empty_like(ids);
  const at::Tensor states = at::zeros({count}, allowed.options());
  keys_.counters[op::kListed].zero_();
  op::run(op::Insert{.table = keys_.view(),
                     .keys = ids.const_data_ptr<int64_t>(),
                     .count = count,
                     .limit = limit_of(limit),
                     .often = nullptr,
                     .given = nullptr,
                     .allowed = allowed.const_data_ptr<uint8_t>(),
                     .score = op::Score::lru,
                     .now = calls_,
                     .call = static_cast<uint32_t>(calls_),
                     .evict = true,
                     .in_order = in_order_,
                     .evicted = {.keys = left_ids.mutable_data_ptr<int64_t>(),
                                 .scores = left_scores.mutable_data_ptr<int64_t>(),
                                 .slots = left.mutable_data_ptr<int64_t>(),
                                 .room = count},
                     .slots = slots.mutable_data_ptr<int64_t>(),
                     .states = states.mutable_data_ptr<uint8_t>()},
          device_);
  op::Rows here = rows(home);
  // Rows that leave go home before others are put into their slots.
  const at::Tensor left_homes =
      homes_.index_select(0, left.clamp_min(0)).masked_fill_(left.lt(0), -1);
  op::run(op::CopyRows{.from = here,
                       .to = home,
                       .from_slots = left.const_data_ptr<int64_t>(),
                       .to_slots = left_homes.const_data_ptr<int64_t>(),
                       .states = nullptr,
                       .state = 0,
                       .count = count,
                       .limit = nullptr},
          device_);
  const at::Tensor inserted = states.eq(op::kInserted);
  homes_.scatter_(0, slots.masked_fill(inserted.logical_not(), this->slots()), homes);
  op::run(op::CopyRows{.from = home,
                       .to = here,
                       .from_slots = homes.const_data_ptr<int64_t>(),
                       .to_slots = slots.const_data_ptr<int64_t>(),
                       .states = states.const_data_ptr<uint8_t>(),
                       .state = op::kInserted,
                       .count = count,
                       .limit = limit_of(limit)},
          device_);
  return at::where(slots.ge(0), slots, at::where(homes.ge(0), homes + this->slots(), -1));
}

at::Tensor RowCache::places(const at::Tensor& ids, const at::Tensor& limit,
                            const at::Tensor& homes) const {
  const at::Tensor slots = at::full_like(ids, -1);
  op::run(op::Find{.table = keys_.view(),
                   .keys = ids.const_data_ptr<int64_t>(),
                   .count = ids.numel(),
                   .limit = limit_of(limit),
                   .slots = slots.mutable_data_ptr<int64_t>()},
          device_);
  return at::where(slots.ge(0), slots, at::where(homes.ge(0), homes + this->slots(), -1));
}

at::Tensor RowCache::homes(const at::Tensor& places) const {
  const at::Tensor cached = homes_.index_select(0, places.clamp(0, slots()));
  return at::where(places.lt(0), -1, at::where(places.lt(slots()), cached, places - slots()));
}

void RowCache::erase(const at::Tensor& ids, const at::Tensor& limit, const at::Tensor& allowed) {
  op::run(op::Erase{.table = keys_.view(),
                    .keys = ids.const_data_ptr<int64_t>(),
                    .count = ids.numel(),
                    .limit = limit_of(limit),
                    .allowed = allowed.defined() ? allowed.const_data_ptr<uint8_t>() : nullptr},
          device_);
}

void RowCache::clear() {
  keys_.digests.zero_();
  keys_.touched.zero_();
  keys_.counters.zero_();
}

}  // namespace seqfuse::embeddings
