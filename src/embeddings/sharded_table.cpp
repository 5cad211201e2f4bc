#include "embeddings/sharded_table.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "embeddings/fetched_rows.h"
#include "ops/torch/ops.h"

namespace seqfuse::embeddings {
namespace {

constexpr int64_t kDrawnRows = 1 << 16;             // initial rows in memory at a time
constexpr int64_t kBlockBytes = int64_t{64} << 20;  // per exchange when loading or saving

// Draws all initial rows and keeps those of these ids.
at::Tensor draw_rows(const DrawRows& draw, int64_t num_rows, const at::Tensor& ids) {
  const int64_t* id = ids.const_data_ptr<int64_t>();
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (int64_t begin = 0; begin < num_rows; begin += kDrawnRows) {
    const int64_t end = std::min(num_rows, begin + kDrawnRows);
    const int64_t last = std::lower_bound(id + first, id + ids.numel(), end) - id;
    parts.push_back(draw(end - begin).index_select(0, ids.slice(0, first, last) - begin));
    first = last;
  }
  return at::cat(parts);
}

int64_t rows_in_block(const at::Tensor& rows) {
  const int64_t row_bytes = c10::multiply_integers(rows.sizes().slice(1)) * rows.element_size();
  return std::max<int64_t>(1, kBlockBytes / row_bytes);
}

}  // namespace

ShardedTable::ShardedTable(std::string name, int64_t num_rows, const DrawRows& draw,
                           distributed::ProcessGroup& group)
    : ShardedTable(std::move(name), num_rows, draw, group,
                   ids_of(group.rank(), group.size(), num_rows)) {}

ShardedTable::ShardedTable(std::string name, int64_t num_rows, const DrawRows& draw,
                           distributed::ProcessGroup& group, at::Tensor own_ids)
    : TensorTable(std::move(name), num_rows, draw_rows(draw, num_rows, own_ids), group),
      own_ids_(std::move(own_ids)) {}

std::string ShardedTable::exchange_of(const char* what) const {
  return std::string("exchange of ") + what + " of table " + name_;
}

std::vector<int64_t> ShardedTable::exchange_counts(const std::vector<int64_t>& counts) const {
  const std::vector<int64_t> one_each(counts.size(), 1);
  const at::Tensor received = group_.all_to_all(torch::tensor(counts, torch::kLong), one_each,
                                                one_each, exchange_of("counts"));
  const int64_t* count = received.const_data_ptr<int64_t>();
  return {count, count + received.numel()};
}

void ShardedTable::fetch(const at::Tensor& ids) {
  return_gradients();
  fetched_ = {};
  RequestPlan plan = plan_requests(ids, group_.size(), num_rows_, name_);
  std::vector<int64_t> asked = exchange_counts(plan.counts);
  const at::Tensor asked_ids = group_.all_to_all(plan.ids.index_select(0, plan.by_owner),
                                                 plan.counts, asked, exchange_of("ids"));
  follow_weight();
  const at::Tensor given =
      ops::embedding_lookup(weight_, at::searchsorted(own_ids_, asked_ids), has_sparse_gradient());
  const at::Tensor received =
      group_.all_to_all(given.detach(), asked, plan.counts, exchange_of("rows"));
  at::Tensor rows = torch::empty_like(received);
  rows.index_copy_(0, plan.by_owner, received);
  rows.set_requires_grad(given.requires_grad());
  fetched_ = {.plan = std::move(plan),
              .asked_of_me = std::move(asked),
              .given = given,
              .rows = std::move(rows)};
}

void ShardedTable::fetch_all() {
  fetch(torch::arange(num_rows_, weight_.options().dtype(torch::kLong)));
}

at::Tensor ShardedTable::lookup(const at::Tensor& ids) {
  return lookup_fetched(name_, fetched_.rows, fetched_.plan.ids, ids);
}

at::Tensor ShardedTable::rows() const {
  SEQFUSE_CHECK(fetched_.rows.defined() && fetched_.rows.size(0) == num_rows_,
                "table {}: all rows are read without fetch_all", name_);
  return fetched_.rows;
}

void ShardedTable::return_gradients() {
  if (!fetched_.rows.defined() || !fetched_.rows.requires_grad()) return;
  const Fetched fetched = std::exchange(fetched_, {});
  at::Tensor gradient = fetched.rows.grad();
  if (!gradient.defined()) gradient = torch::zeros_like(fetched.rows);  // no loss in this process
  const at::Tensor received =
      group_.all_to_all(gradient.index_select(0, fetched.plan.by_owner), fetched.plan.counts,
                        fetched.asked_of_me, exchange_of("gradients"));
  fetched.given.backward(received);
}

void ShardedTable::follow_weight() {
  if (own_ids_.device() != weight_.device()) own_ids_ = own_ids_.to(weight_.device());
}

at::Tensor ShardedTable::gather(const at::Tensor& here) const {
  const torch::NoGradGuard no_grad;
  const bool to_me = group_.is_first();
  std::vector<int64_t> shape = here.sizes().vec();
  shape[0] = num_rows_;
  at::Tensor all;
  if (to_me) all = torch::empty(shape, here.options().device(torch::kCPU).requires_grad(false));
  const std::vector<int64_t> nothing(group_.size(), 0);
  const at::Tensor own = own_ids_.cpu();
  const int64_t* id = own.const_data_ptr<int64_t>();
  const int64_t block = rows_in_block(here);
  int64_t first = 0;  // among this process's rows
  for (int64_t begin = 0; begin < num_rows_; begin += block) {
    const int64_t end = std::min(num_rows_, begin + block);
    const int64_t last = std::lower_bound(id + first, id + own.numel(), end) - id;
    const RequestPlan plan =
        plan_requests(torch::arange(begin, end, torch::kLong), group_.size(), num_rows_, name_);
    std::vector<int64_t> sent = nothing;
    sent[0] = last - first;
    const at::Tensor received =
        group_.all_to_all(here.detach().slice(0, first, last), sent, to_me ? plan.counts : nothing,
                          exchange_of("the checkpoint"));
    first = last;
    if (to_me) all.index_copy_(0, plan.ids.index_select(0, plan.by_owner), received.cpu());
  }
  return all;
}

// The ids are sent before the rows, so that owners know which rows these are.
void ShardedTable::scatter(int64_t count, const at::Tensor& ids,
                           const std::vector<at::Tensor>& given,
                           const std::vector<at::Tensor>& here) {
  follow_weight();
  const bool from_me = group_.is_first();
  const int64_t block = rows_in_block(here[0]);
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t end = std::min(count, begin + block);
    RequestPlan plan{.ids = torch::empty({0}, torch::kLong),
                     .by_owner = torch::empty({0}, torch::kLong),
                     .counts = std::vector<int64_t>(group_.size(), 0)};
    at::Tensor places;  // indices into given, by owner
    if (from_me) {
      const at::Tensor block_ids =
          ids.defined() ? ids.slice(0, begin, end).cpu() : torch::arange(begin, end, torch::kLong);
      plan = plan_requests(block_ids, group_.size(), num_rows_, name_);
      places = at::argsort(block_ids).index_select(0, plan.by_owner) + begin;
    }
    const std::vector<int64_t> received = exchange_counts(plan.counts);
    const auto send = [&](const at::Tensor& rows) {
      return group_.all_to_all(rows, plan.counts, received, exchange_of("the checkpoint"));
    };
    const at::Tensor received_ids =
        send(plan.ids.index_select(0, plan.by_owner).to(weight_.device()));
    const at::Tensor rows_here = at::searchsorted(own_ids_, received_ids);
    for (size_t i = 0; i < here.size(); ++i) {
      const at::Tensor sent =
          from_me ? given[i].index_select(0, places.to(given[i].device())) : here[i].slice(0, 0, 0);
      here[i].index_copy_(0, rows_here, send(sent.to(here[i].options())));
    }
  }
}

}  // namespace seqfuse::embeddings
