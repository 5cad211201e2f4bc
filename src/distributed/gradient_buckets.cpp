#include "distributed/gradient_buckets.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace seqfuse::distributed {
namespace {

constexpr const char* kWhat = "all-reduce of gradients";

// Called when the gradient of a parameter is complete.
class Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(std::function<void()> call) : call_(std::move(call)) {}
  void operator()(const at::Tensor&) override { call_(); }

 private:
  std::function<void()> call_;
};

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

}  // namespace

GradientBuckets::GradientBuckets(ProcessGroup& group, std::vector<at::Tensor> parameters,
                                 int64_t bucket_bytes)
    : group_(group), parameters_(std::move(parameters)), bucket_of_(parameters_.size()) {
  if (!group_.several()) return;
  int64_t bytes = 0;
  for (size_t i = parameters_.size(); i-- > 0;) {
    const at::Tensor& parameter = parameters_[i];
    const bool fits = !buckets_.empty() && bytes + bytes_of(parameter) <= bucket_bytes &&
                      parameters_[buckets_.back().members[0]].dtype() == parameter.dtype();
    if (!fits) {
      buckets_.emplace_back();
      bytes = 0;
    }
    bytes += bytes_of(parameter);
    buckets_.back().members.push_back(i);
    bucket_of_[i] = buckets_.size() - 1;
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameter, std::make_unique<Hook>([this, i] { gradient_is_there(i); }));
  }
}

GradientBuckets::~GradientBuckets() {
  if (!group_.several()) return;
  for (const at::Tensor& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
}

void GradientBuckets::start() {
  there_.assign(parameters_.size(), 0);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.members.size();
  next_ = 0;
  collecting_ = true;
}

void GradientBuckets::gradient_is_there(size_t parameter) {
  if (!collecting_ || there_[parameter]) return;
  there_[parameter] = 1;
  --buckets_[bucket_of_[parameter]].missing;
  send_full_buckets();
}

void GradientBuckets::send_full_buckets() {
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) send(buckets_[next_]);
}

void GradientBuckets::send(Bucket& bucket) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const size_t i : bucket.members) {
    const at::Tensor gradient = parameters_[i].grad();
    SEQFUSE_CHECK(!gradient.defined() || !gradient.is_sparse(),
                  "gradient buckets hold dense gradients only");
    parts.push_back(gradient.defined()
                        ? gradient.reshape({-1})
                        : torch::zeros({parameters_[i].numel()}, parameters_[i].options()));
  }
  bucket.flat = torch::cat(parts);
  bucket.finish = group_.all_reduce(bucket.flat, kWhat);
}

void GradientBuckets::finish(std::span<double> numbers) {
  if (!group_.several()) return;
  collecting_ = false;
  sent_early_ = static_cast<int64_t>(next_);
  for (; next_ < buckets_.size(); ++next_) send(buckets_[next_]);
  for (Bucket& bucket : buckets_) std::exchange(bucket.finish, {})();
  // The number of processes that have each gradient, followed by the numbers.
  std::vector<double> sums(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) sums[i] = parameters_[i].grad().defined() ? 1 : 0;
  sums.insert(sums.end(), numbers.begin(), numbers.end());
  group_.sum(sums, "exchange of losses and counts");
  std::copy(sums.end() - std::ssize(numbers), sums.end(), numbers.begin());
  for (Bucket& bucket : buckets_) {
    int64_t begin = 0;
    for (const size_t i : bucket.members) {
      at::Tensor& parameter = parameters_[i];
      const at::Tensor sum =
          bucket.flat.narrow(0, begin, parameter.numel()).view(parameter.sizes());
      begin += parameter.numel();
      if (sums[i] > 0) parameter.mutable_grad() = sum;
    }
    bucket.flat.reset();  // the gradients keep it
  }
}

void sum_table_gradient(ProcessGroup& group, at::Tensor table) {
  if (!group.several()) return;
  const torch::NoGradGuard no_grad;
  at::Tensor gradient = table.grad();
  std::array<double, 2> holders = {};  // processes with a sparse and with a dense gradient
  if (gradient.defined()) holders[gradient.is_sparse() ? 0 : 1] = 1;
  group.sum(holders, "exchange of which gradients there are");
  if (holders[0] + holders[1] == 0) return;
  if (holders[1] > 0) {
    const at::Tensor dense = gradient.defined() ? gradient.to_dense() : torch::zeros_like(table);
    group.all_reduce(dense, kWhat)();
    table.mutable_grad() = dense;
    return;
  }
  if (!gradient.defined()) {
    gradient =
        torch::sparse_coo_tensor(torch::zeros({1, 0}, table.options().dtype(torch::kLong)),
                                 torch::zeros({0, table.size(1)}, table.options()), table.sizes());
  }
  gradient = gradient.coalesce();
  const at::Tensor ids = group.gather(gradient.indices()[0].contiguous(), kWhat);
  const at::Tensor rows = group.gather(gradient.values(), kWhat);
  table.mutable_grad() = torch::sparse_coo_tensor(ids.unsqueeze(0), rows, table.sizes()).coalesce();
}

}  // namespace seqfuse::distributed
