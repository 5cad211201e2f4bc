#include "embeddings/tensor_table.h"

#include <utility>

#include "base/error.h"
#include "embeddings/update/update_step.h"

namespace seqfuse::embeddings {

TensorTable::TensorTable(std::string name, int64_t num_rows, at::Tensor weight,
                         distributed::ProcessGroup& group)
    : EmbeddingTable(std::move(name), weight.size(1), group),
      num_rows_(num_rows),
      weight_(std::move(weight)) {}

at::TensorOptions TensorTable::options() const {
  return weight_.options();
}

void TensorTable::make_state(OptimizerKind kind, bool averaged) {
  SEQFUSE_CHECK(weight_.is_contiguous(), "the rows of table {} are not contiguous", name_);
  state_.emplace(weight_, kind, /*weight_decay=*/0, averaged);
}

void TensorTable::zero_gradients() {
  weight_.mutable_grad().reset();
}

at::Tensor TensorTable::gradient() const {
  const at::Tensor gradient = weight_.grad();
  if (!gradient.defined() || !gradient.is_sparse()) return gradient;
  // Sums gradients of equal ids.
  return gradient.coalesce().values();
}

void TensorTable::apply_gradients(UpdateStep& step) {
  SEQFUSE_CHECK(state_, "table {}: apply_gradients without make_state", name_);
  step.update(*state_, weight_.grad());
}

void TensorTable::swap_averages() {
  if (state_) state_->swap_average();
}

void TensorTable::restart_averages() {
  if (state_) state_->restart_average();
}

TableContents TensorTable::here() const {
  return {
      .ids = {}, .rows = weight_.detach(), .state = state_ ? state_->tensors() : StateTensors()};
}

TableContents TensorTable::contents() const {
  TableContents contents = here();
  contents.rows = gather(contents.rows);
  for (auto& [name, tensor] : contents.state) tensor = gather(tensor);
  return group_.is_first() ? contents : TableContents();
}

void TensorTable::check(const TableContents& given, const LoadOptions& options) const {
  check_contents(name_, num_rows_, here(), given, options);
}

void TensorTable::load(const TableContents& given, const LoadOptions& options) {
  const torch::NoGradGuard no_grad;
  if (group_.is_first()) check(given, options);
  // Only the first process knows what is loaded.
  const auto shared = given.state.find(kSharedRow);
  const at::Tensor facts = torch::tensor(
      {given.size(), int64_t{options.state}, int64_t{shared != given.state.end()}}, torch::kLong);
  group_.broadcast({facts}, "broadcast of table " + name_);
  const int64_t count = facts[0].item<int64_t>();
  const bool with_state = facts[1].item<int64_t>() != 0;
  const TableContents here = this->here();
  if (facts[2].item<int64_t>() != 0) {
    const at::Tensor row =
        group_.is_first()
            ? shared->second.to(weight_.options(), /*non_blocking=*/false, /*copy=*/true)
            : torch::empty({dim_}, weight_.options());
    group_.broadcast({row}, "broadcast of table " + name_);
    weight_.copy_(row.expand_as(weight_));
    if (with_state) {
      for (const auto& [name, tensor] : here.state) {
        if (name == "unaveraged") {
          tensor.copy_(weight_);
        } else {
          tensor.zero_();
        }
      }
    }
  }
  std::vector<at::Tensor> from = {given.rows}, to = {here.rows};
  if (with_state) {
    for (const auto& [name, tensor] : here.state) {
      from.push_back(group_.is_first() ? given.state.at(name) : at::Tensor());
      to.push_back(tensor);
    }
  }
  scatter(count, given.ids, from, to);
}

}  // namespace seqfuse::embeddings
