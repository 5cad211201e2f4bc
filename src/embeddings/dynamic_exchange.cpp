#include "embeddings/dynamic_exchange.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "embeddings/shard_plan.h"

namespace seqfuse::embeddings {
namespace {

constexpr int64_t kLow32 = 0xFFFFFFFF, kOddNumber = 0x45D9F3B;
constexpr int64_t kBytesSent = int64_t{64} << 20;  // at a time, when loading or saving

int64_t rows_at_a_time(const at::Tensor& rows) {
  const int64_t bytes = c10::multiply_integers(rows.sizes().slice(1)) * rows.element_size();
  return std::max<int64_t>(1, kBytesSent / std::max<int64_t>(1, bytes));
}

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor here = tensor.to(at::kCPU, at::kLong).contiguous();
  const int64_t* data = here.const_data_ptr<int64_t>();
  return {data, data + here.numel()};
}

}  // namespace

at::Tensor IdDealing::owners(const at::Tensor& ids, int64_t processes) const {
  if (kind == Kind::modulo) return ids.remainder(processes);
  if (kind == Kind::continuous) {
    const int64_t block = std::max<int64_t>(1, (range + processes - 1) / processes);
    return ids.clamp(0, block * processes - 1).floor_divide(block);
  }
  // owner_of takes 32 bits.
  const at::Tensor high =
      ids.__rshift__(32).bitwise_and_(kLow32).mul_(kOddNumber).bitwise_and_(kLow32);
  return owner_of(ids.bitwise_and(kLow32).bitwise_xor_(high), processes);
}

int64_t capacity_of_process(int64_t capacity, int64_t processes) {
  if (processes == 1) return capacity;
  const double mean = static_cast<double>(capacity) / static_cast<double>(processes);
  // Six standard deviations of what a hash deals.
  return std::min(capacity, static_cast<int64_t>(std::ceil(mean + 6 * std::sqrt(mean))) + 1);
}

DynamicExchange::DynamicExchange(std::string table, IdDealing dealing,
                                 distributed::ProcessGroup& group)
    : table_(std::move(table)), dealing_(dealing), group_(group) {}

std::string DynamicExchange::what(const char* exchanged) const {
  return std::string("exchange of ") + exchanged + " of table " + table_;
}

std::vector<int64_t> DynamicExchange::exchange_counts(const std::vector<int64_t>& counts) const {
  const std::vector<int64_t> one_each(counts.size(), 1);
  return numbers(
      group_.all_to_all(torch::tensor(counts, torch::kLong), one_each, one_each, what("counts")));
}

at::Tensor DynamicExchange::rows_of_processes(const at::Tensor& ids) const {
  return at::bincount(dealing_.owners(ids, group_.size()), {}, group_.size());
}

DynamicExchange::Request DynamicExchange::ask(const at::Tensor& ids) const {
  Request request;
  at::Tensor often, inverse;
  std::tie(request.ids, inverse, often) = at::_unique2(
      ids.flatten(), /*sorted=*/true, /*return_inverse=*/false, /*return_counts=*/true);
  const at::Tensor owners = dealing_.owners(request.ids, group_.size());
  request.by_owner = at::argsort(owners, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  request.counts = numbers(at::bincount(owners, {}, group_.size()));
  request.asked = exchange_counts(request.counts);
  const at::Tensor asked =
      group_.all_to_all(at::stack({request.ids, often}, 1).index_select(0, request.by_owner),
                        request.counts, request.asked, what("ids"));
  request.asked_ids = asked.select(1, 0).contiguous();
  request.asked_times = asked.select(1, 1).contiguous();
  return request;
}

at::Tensor DynamicExchange::answer(const Request& request, const at::Tensor& rows) const {
  const at::Tensor received = group_.all_to_all(rows, request.asked, request.counts, what("rows"));
  return at::empty_like(received).index_copy_(0, request.by_owner, received);
}

at::Tensor DynamicExchange::give_back(const Request& request, const at::Tensor& gradients) const {
  return group_.all_to_all(gradients.index_select(0, request.by_owner), request.counts,
                           request.asked, what("gradients"));
}

at::Tensor DynamicExchange::gather_rows(const at::Tensor& here,
                                        const std::vector<int64_t>& sizes) const {
  const bool to_me = group_.is_first();
  const int64_t block = rows_at_a_time(here);
  const auto rank = static_cast<size_t>(group_.rank());
  at::Tensor all;
  std::vector<int64_t> begins(sizes.size(), 0);
  if (to_me) {
    std::vector<int64_t> shape = here.sizes().vec();
    shape[0] = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    all = at::empty(shape, here.options());
    std::partial_sum(sizes.begin(), sizes.end() - 1, begins.begin() + 1);
  }
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  for (int64_t done = 0; done < most; done += block) {
    const auto part = [&](size_t process) {
      return std::clamp<int64_t>(sizes[process] - done, 0, block);
    };
    std::vector<int64_t> sent(sizes.size(), 0), received(sizes.size(), 0);
    sent[0] = part(rank);
    for (size_t process = 0; to_me && process < sizes.size(); ++process) {
      received[process] = part(process);
    }
    const int64_t first = std::min(done, sizes[rank]);
    const at::Tensor got = group_.all_to_all(here.slice(0, first, first + sent[0]).contiguous(),
                                             sent, received, what("the checkpoint"));
    int64_t from = 0;
    for (size_t process = 0; to_me && process < sizes.size(); ++process) {
      const int64_t to = begins[process] + done;
      all.slice(0, to, to + received[process]).copy_(got.slice(0, from, from + received[process]));
      from += received[process];
    }
  }
  return all;
}

HashTableContents DynamicExchange::gather(const HashTableContents& here, at::Tensor& shards) const {
  shards = group_.gather(torch::tensor({{here.size(), here.capacity}}, torch::kLong),
                         what("the checkpoint"));
  const std::vector<int64_t> sizes = numbers(shards.select(1, 0));
  HashTableContents all{
      .ids = gather_rows(here.ids, sizes),
      .rows = here.rows.size(1) > 0 ? gather_rows(here.rows, sizes) : at::Tensor(),
      .scores = gather_rows(here.scores, sizes),
      .touched = gather_rows(here.touched, sizes),
      .slots = gather_rows(here.slots, sizes),
      .capacity = 0,
      .calls = here.calls};
  return all;
}

HashTableContents DynamicExchange::scatter(const HashTableContents& given,
                                           const at::Tensor& shards) const {
  const bool from_me = group_.is_first();
  const int64_t processes = group_.size();
  at::Tensor by_owner, numbers_of_rows, rows;
  // The same for all processes: rows, their width, calls, whether slots are kept; then the capacity of each.
  at::Tensor facts = torch::zeros({4 + processes}, torch::kLong);
  at::Tensor owners;
  if (from_me) {
    const at::Tensor ids = given.ids.defined() ? given.ids.cpu() : at::empty({0}, at::kLong);
    const auto or_zeros = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.to(at::kCPU, at::kLong).flatten() : at::zeros_like(ids);
    };
    owners = dealing_.owners(ids, processes);
    by_owner = at::argsort(owners, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    const bool kept =
        shards.defined() && shards.size(0) == processes && given.slots.defined() &&
        owners.equal(at::repeat_interleave(at::arange(processes, at::kLong), shards.select(1, 0)));
    numbers_of_rows =
        at::stack({ids, or_zeros(given.scores), or_zeros(given.touched), or_zeros(given.slots)}, 1);
    rows = given.rows.defined() ? given.rows.cpu() : at::empty({ids.numel(), 0}, at::kFloat);
    facts.slice(0, 0, 4).copy_(
        torch::tensor({ids.numel(), rows.size(1), given.calls, int64_t{kept}}, torch::kLong));
    if (kept) facts.slice(0, 4).copy_(shards.select(1, 1));
  }
  group_.broadcast({facts}, what("the checkpoint"));
  const std::vector<int64_t> fact = numbers(facts);
  const int64_t count = fact[0], width = fact[1];
  if (!from_me) {
    numbers_of_rows = at::empty({0, 4}, at::kLong);
    rows = at::empty({0, width}, at::kFloat);
  }
  std::vector<at::Tensor> got_numbers, got_rows;
  const int64_t block = rows_at_a_time(at::empty({0, width + 8}, at::kFloat));
  for (int64_t begin = 0; begin < count; begin += block) {
    at::Tensor index = at::empty({0}, at::kLong);
    std::vector<int64_t> sent(static_cast<size_t>(processes), 0);
    if (from_me) {
      index = by_owner.slice(0, begin, std::min(count, begin + block));
      sent = numbers(at::bincount(owners.index_select(0, index), {}, processes));
    }
    const std::vector<int64_t> received = exchange_counts(sent);
    got_numbers.push_back(group_.all_to_all(numbers_of_rows.index_select(0, index), sent, received,
                                            what("the checkpoint")));
    got_rows.push_back(width == 0 ? at::empty({got_numbers.back().size(0), 0}, at::kFloat)
                                  : group_.all_to_all(rows.index_select(0, index), sent, received,
                                                      what("the checkpoint")));
  }
  HashTableContents here;
  here.calls = fact[2];
  if (got_rows.empty()) {
    here.ids = at::empty({0}, at::kLong);
    here.rows = at::empty({0, width}, at::kFloat);
    return here;
  }
  const at::Tensor all = at::cat(got_numbers);
  here.ids = all.select(1, 0).contiguous();
  here.rows = at::cat(got_rows);
  here.scores = all.select(1, 1).contiguous();
  here.touched = all.select(1, 2).to(at::kInt);
  if (fact[3] != 0) {
    here.slots = all.select(1, 3).contiguous();
    here.capacity = fact[4 + static_cast<size_t>(group_.rank())];
  }
  return here;
}

}  // namespace seqfuse::embeddings
