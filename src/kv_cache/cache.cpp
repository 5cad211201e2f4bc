#include "kv_cache/cache.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace seqfuse::kv_cache {
using at::Tensor;

int64_t cache_bytes(const Rule& rule, const Shape& shape, int64_t rows, at::ScalarType dtype) {
  return 2 * shape.layers * rows * shape.heads * rule.slots() * shape.head_dim *
         static_cast<int64_t>(c10::elementSize(dtype));
}

Cache::Cache(const Rule& rule, const Shape& shape, const Rotary& rotary, int64_t rows,
             at::TensorOptions options)
    : rule_(rule),
      shape_(shape),
      rotary_(rotary),
      dtype_(c10::typeMetaToScalarType(options.dtype())),
      lengths_on_device_(at::zeros({rows}, options.dtype(at::kLong))),
      lengths_(rows, 0) {
  SEQFUSE_CHECK(rule.kind != Kind::recompute, "the recompute rule has no cache");
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    // Zeros: hidden slots enter with weight 0, and 0 * NaN would be NaN.
    const std::vector<int64_t> sizes = {rows, shape.heads, rule.slots(), shape.head_dim};
    keys_.push_back(at::zeros(sizes, options));
    values_.push_back(at::zeros(sizes, options));
  }
}

int64_t Cache::longest_prefill() const {
  const int64_t scores = (64 << 20) / 4, keys = rule_.slots() + 512;
  return std::clamp<int64_t>(scores / (shape_.heads * keys), 16, 512);
}

void Cache::clear(int64_t row) {
  lengths_[row] = 0;
  lengths_on_device_[row].zero_();
}

void Cache::copy(int64_t from, int64_t to) {
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    keys_[layer][to].copy_(keys_[layer][from]);
    values_[layer][to].copy_(values_[layer][from]);
  }
  lengths_[to] = lengths_[from];
  lengths_on_device_[to].copy_(lengths_on_device_[from]);
}

Tensor Cache::positions(const Tensor& tokens) const {
  const int64_t kept = rule_.start + rule_.recent;
  return at::where(tokens < kept, tokens, (tokens - kept).remainder(rule_.prune_every) + kept);
}

// A query uses its true index towards the newest tokens and its position in the cache towards the
// first ones.
void Cache::set_angles(const Tensor& tokens) {
  pass_.angles = rotary_.angles(tokens, dtype_);
  pass_.shortened &= rule_.start > 0 && !rule_.true_distances;
  if (pass_.shortened) pass_.start_angles = rotary_.angles(positions(tokens), dtype_);
}

void Cache::check_room(const std::vector<bool>& active) const {
  SEQFUSE_CHECK(static_cast<int64_t>(active.size()) == rows(), "{} rows; the cache has {}",
                active.size(), rows());
  for (int64_t row = 0; row < rows(); ++row) {
    SEQFUSE_CHECK(!active[row] || rule_.kind != Kind::full || lengths_[row] < rule_.slots(),
                  "the full cache of {} tokens has no room for another", rule_.slots());
  }
}

void Cache::count_step(const std::vector<bool>& active) {
  for (size_t row = 0; row < active.size(); ++row) lengths_[row] += active[row] ? 1 : 0;
}

void Cache::begin_step(const std::vector<bool>& active) {
  check_room(active);
  pass_ = {.tokens = 1, .active = active};
  for (int64_t row = 0; row < rows(); ++row) {
    pass_.used = std::max(pass_.used, std::min(lengths_[row] + 1, rule_.slots()));
    pass_.shortened |= lengths_[row] > rule_.start + rule_.recent;
  }
  if (steps_on_cpu()) {
    pass_.on_cpu = cpu_step(rule_, rotary_, lengths_, active);
    return;
  }
  see_slots();
}

void Cache::begin_step_on_device() {
  pass_ = {.tokens = 1, .used = rule_.slots(), .shortened = true, .on_device = true};
  see_slots();
}

void Cache::see_slots() {
  // Inactive rows write too: to their next token's slot, which is not visible yet (or, if a full
  // cache has no slot left, to one of a row that has ended).
  const Tensor t = lengths_on_device_;  // [rows]: the index of each new token
  const int64_t start = rule_.start, ring = rule_.ring();
  pass_.slots = at::where(t < start, t, (t - start).remainder(ring) + start);
  const Tensor slot = at::arange(pass_.used, t.options());
  const Tensor now = t.unsqueeze(1);  // [rows, 1] against slots [used]
  // Age of the newest token in a slot: its distance back in the ring.
  const Tensor age = (now - slot).remainder(ring);
  const Tensor first = slot < start;
  const Tensor seen =
      at::where(first, slot <= now, (age <= positions(now) - start) & (age <= now - start));
  pass_.hidden = seen.logical_not().unsqueeze(1).unsqueeze(1);  // [rows, 1, 1, used]
  set_angles(t.view({-1, 1, 1}));
}

void Cache::begin_prefill(int64_t row, int64_t tokens) {
  const int64_t before = lengths_[row], start = rule_.start, ring = rule_.ring();
  SEQFUSE_CHECK(tokens >= 1, "a pass of {} tokens", tokens);
  SEQFUSE_CHECK(rule_.kind != Kind::full || before + tokens <= rule_.slots(),
                "{} tokens do not fit into the full cache of {} tokens", before + tokens,
                rule_.slots());
  pass_ = {.row = row, .tokens = tokens};
  const int64_t last = before + tokens - 1;
  pass_.used = std::min(before, rule_.slots());
  pass_.causal = before == 0 && rule_.position(last) == last;
  pass_.shortened = last > start + rule_.recent;
  const auto options = lengths_on_device_.options();
  const Tensor t = at::arange(before, before + tokens, options);
  if (!pass_.causal) {
    // Columns of the scores: the slots as they are, then the pass's own tokens.
    const Tensor slot = at::arange(pass_.used, options);
    const Tensor in_ring = (before - 1) - (before - 1 - slot).remainder(ring);
    const Tensor column = at::cat({at::where(slot < start, slot, in_ring), t}).unsqueeze(0);
    const Tensor now = t.unsqueeze(1);
    const Tensor near = (now - column <= positions(now) - start) & (column >= start);
    pass_.hidden = ((column <= now) & ((column < start) | near)).logical_not();  // [tokens, keys]
  }
  // If two tokens map to one slot, the newer one stays.
  const int64_t end = before + tokens;
  pass_.firsts = std::clamp<int64_t>(start - before, 0, tokens);
  const int64_t newest = std::min(std::max({start, before, end - ring}), end);
  pass_.newest = newest - before;
  const Tensor kept = at::cat(
      {at::arange(before, before + pass_.firsts, options), at::arange(newest, end, options)});
  pass_.slots = at::where(kept < start, kept, (kept - start).remainder(ring) + start);
  set_angles(t);
}

Tensor Cache::weighted_values(const Tensor& scores, const Tensor& values) const {
  const auto accumulated = dtype_ == at::kDouble ? at::kDouble : at::kFloat;
  return at::matmul(at::softmax(scores, -1, accumulated).to(dtype_), values);
}

Tensor Cache::step(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v) {
  if (pass_.on_cpu) {
    return ops::decode_attention(q.squeeze(2), k.squeeze(2), v.squeeze(2), keys_[layer],
                                 values_[layer], pass_.on_cpu->rows, pass_.on_cpu->angles)
        .unsqueeze(2);
  }
  const Tensor index = pass_.slots.view({-1, 1, 1, 1}).expand_as(k);
  keys_[layer].scatter_(2, index, rotary_.rotate(k, pass_.angles));
  values_[layer].scatter_(2, index, v);
  const Tensor keys = keys_[layer].narrow(2, 0, pass_.used);
  Tensor scores = at::matmul(rotary_.rotate(q, pass_.angles), keys.transpose(-2, -1));
  if (pass_.shortened) {
    const Tensor first = keys.narrow(2, 0, rule_.start);
    scores.narrow(3, 0, rule_.start)
        .copy_(at::matmul(rotary_.rotate(q, pass_.start_angles), first.transpose(-2, -1)));
  }
  scores.mul_(1 / std::sqrt(static_cast<double>(shape_.head_dim)))
      .masked_fill_(pass_.hidden, -std::numeric_limits<double>::infinity());
  return weighted_values(scores, values_[layer].narrow(2, 0, pass_.used));
}

Tensor Cache::prefill(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v) {
  const double scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim));
  const Tensor turned = rotary_.rotate(k, pass_.angles), query = rotary_.rotate(q, pass_.angles);
  const Tensor stored_keys = keys_[layer].narrow(0, pass_.row, 1);
  const Tensor stored_values = values_[layer].narrow(0, pass_.row, 1);
  Tensor result;
  if (pass_.causal) {
    result = at::scaled_dot_product_attention(query, turned, v, {}, 0.0, /*is_causal=*/true, scale);
  } else {
    const Tensor keys = at::cat({stored_keys.narrow(2, 0, pass_.used), turned}, 2);
    const Tensor values = at::cat({stored_values.narrow(2, 0, pass_.used), v}, 2);
    Tensor scores = at::matmul(query, keys.transpose(-2, -1));
    if (pass_.shortened) {
      const Tensor start_query = rotary_.rotate(q, pass_.start_angles);
      // The first tokens are the first columns of the slots and, if the pass has some, of the pass.
      const auto shorten = [&](int64_t begin, int64_t count) {
        if (count <= 0) return;
        scores.narrow(3, begin, count)
            .copy_(at::matmul(start_query, keys.narrow(2, begin, count).transpose(-2, -1)));
      };
      const int64_t before = lengths_[pass_.row], start = rule_.start;
      shorten(0, std::min(start, before));
      shorten(pass_.used, std::min(start - before, pass_.tokens));
    }
    scores.mul_(scale).masked_fill_(pass_.hidden, -std::numeric_limits<double>::infinity());
    result = weighted_values(scores, values);
  }
  const auto kept = [&](const Tensor& x) {
    return at::cat({x.slice(2, 0, pass_.firsts), x.slice(2, pass_.newest)}, 2)[0];
  };
  keys_[layer][pass_.row].index_copy_(1, pass_.slots, kept(turned));
  values_[layer][pass_.row].index_copy_(1, pass_.slots, kept(v));
  return result;
}

Tensor Cache::attend(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::vector<int64_t> sizes = {pass_.row < 0 ? rows() : 1, shape_.heads, pass_.tokens,
                                      shape_.head_dim};
  SEQFUSE_CHECK(
      q.sizes() == at::IntArrayRef(sizes) && k.sizes() == q.sizes() && v.sizes() == q.sizes(),
      "attend: q, k and v have {} elements; expected [{}, {}, {}, {}] each", q.numel(), sizes[0],
      sizes[1], sizes[2], sizes[3]);
  return pass_.row < 0 ? step(layer, q, k, v) : prefill(layer, q, k, v);
}

void Cache::end() {
  if (pass_.row >= 0) {
    lengths_[pass_.row] += pass_.tokens;
    lengths_on_device_[pass_.row].add_(pass_.tokens);
  } else if (!pass_.on_device) {
    const std::vector<int64_t> growth(pass_.active.begin(), pass_.active.end());
    count_step(pass_.active);
    lengths_on_device_.add_(at::tensor(growth, at::kLong).to(lengths_on_device_.device()));
  }
  pass_ = {};
}

}  // namespace seqfuse::kv_cache
