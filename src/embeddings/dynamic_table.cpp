#include "embeddings/dynamic_table.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "embeddings/fetched_rows.h"
#include "embeddings/update/update_step.h"

namespace seqfuse::embeddings {
namespace {

using ops::hash_table::sum_by_id;
using ops::hash_table::unique_ids;

constexpr int64_t kFirstRows = 1 << 16;

// A table of hashes in a checkpoint: per row, and [capacity, calls].
void put(StateTensors& state, const std::string& prefix, const HashTableContents& table) {
  state[prefix + "scores"] = table.scores;
  state[prefix + "touched"] = table.touched;
  state[prefix + "slots"] = table.slots;
  state[prefix + "table"] = torch::tensor({table.capacity, table.calls}, torch::kLong);
}

at::Tensor found(const StateTensors& state, const std::string& name) {
  const auto entry = state.find(name);
  return entry == state.end() ? at::Tensor() : entry->second;
}

void take(const StateTensors& state, const std::string& prefix, HashTableContents& table) {
  table.scores = found(state, prefix + "scores");
  table.touched = found(state, prefix + "touched");
  table.slots = found(state, prefix + "slots");
  const at::Tensor numbers = found(state, prefix + "table");
  if (!numbers.defined()) return;
  SEQFUSE_CHECK_AS(DataError, numbers.numel() == 2,
                   "the checkpoint's {}table has {} numbers; expected the capacity and the calls",
                   prefix, numbers.numel());
  table.capacity = numbers[0].item<int64_t>();
  table.calls = numbers[1].item<int64_t>();
}

// The rows with the highest scores, in their order. Several processes together may hold more rows than
// one: each has room for more than its share (capacity_of_process()).
void keep_highest(HashTableContents& table, int64_t rows) {
  at::Tensor kept = at::arange(rows, at::kLong);
  if (table.scores.defined()) kept = std::get<0>(std::get<1>(table.scores.cpu().topk(rows)).sort());
  for (at::Tensor* one : {&table.ids, &table.rows, &table.scores, &table.touched})
    if (one->defined()) *one = one->index_select(0, kept.to(one->device()));
  table.slots = at::Tensor();
}

// Slots of several processes mean nothing in one.
DynamicRowsContents without_shards(DynamicRowsContents contents, const StateTensors& state) {
  if (state.contains("shards")) contents.table.slots = at::Tensor();
  if (state.contains("counted_shards")) contents.counted.slots = at::Tensor();
  return contents;
}

}  // namespace

RowOptimizer row_optimizer(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd:
      return RowOptimizer::sgd;
    case OptimizerKind::row_wise_adagrad:
      return RowOptimizer::row_wise_adagrad;
    default:
      return RowOptimizer::adam;
  }
}

DynamicTable::DynamicTable(DynamicRowsOptions options, int64_t vocabulary,
                           distributed::ProcessGroup& group, IdDealing dealing)
    : EmbeddingTable(options.table.name, options.table.dim, group),
      vocabulary_(vocabulary),
      capacity_(options.table.capacity),
      exchange_(name_, dealing, group),
      options_(std::move(options)) {
  options_.optimizer = RowOptimizer::sgd;
  options_.table.capacity = capacity_of_process(capacity_, group.size());
  // make_state() makes the table that is trained: until then there is nothing to allocate whole.
  DynamicRowsOptions first = options_;
  first.table.initial_capacity = std::min(first.table.initial_capacity, kFirstRows);
  rows_.emplace(std::move(first));
}

at::TensorOptions DynamicTable::options() const {
  return at::TensorOptions().dtype(at::kFloat).device(options_.table.device);
}

void DynamicTable::fetch(const at::Tensor& ids) {
  return_gradients();
  fetched_ = {};
  const bool training = torch::GradMode::is_enabled();
  const bool several = group_.several();
  if (several) fetched_.request = exchange_.ask(ids);
  const at::Tensor& here = several ? fetched_.request.asked_ids : ids;
  const at::Tensor& times = fetched_.request.asked_times;  // undefined: once
  if (training) {
    DynamicRows::Scores scores{.custom = {}, .step = {}, .times = times};
    if (options_.table.score == Score::step) scores.step = rows_->table().calls() + 1;
    fetched_.batch = rows_->fetch(here, scores);
  } else {
    fetched_.batch = rows_->find(here, times);
  }
  if (several) {
    fetched_.ids = fetched_.request.ids;
    fetched_.rows = exchange_.answer(fetched_.request, rows_->rows(fetched_.batch));
  } else {
    fetched_.ids = fetched_.batch.unique.ids;
    fetched_.rows = rows_->unique_rows(fetched_.batch);
  }
  fetched_.rows.set_requires_grad(training && trained_);
}

void DynamicTable::fetch_all() {
  fetch(torch::arange(vocabulary_, options().dtype(torch::kLong)));
}

void DynamicTable::prefetch(const at::Tensor& ids) {
  rows_->prefetch([&] { return group_.several() ? exchange_.ask(ids).asked_ids : ids; });
}

at::Tensor DynamicTable::lookup(const at::Tensor& ids) {
  return lookup_fetched(name_, fetched_.rows, fetched_.ids, ids);
}

at::Tensor DynamicTable::rows() const {
  SEQFUSE_CHECK(fetched_.rows.defined() && fetched_.rows.size(0) == vocabulary_,
                "table {}: all rows are read without fetch_all", name_);
  return fetched_.rows;
}

void DynamicTable::return_gradients() {
  if (!group_.several()) return take_gradient();
  if (!fetched_.rows.defined() || !fetched_.rows.requires_grad()) return;
  const Fetched fetched = std::exchange(fetched_, {});
  at::Tensor gradient = fetched.rows.grad();
  if (!gradient.defined()) gradient = torch::zeros_like(fetched.rows);  // no loss in this process
  add_gradient(fetched.batch,
               sum_by_id(fetched.batch.unique, exchange_.give_back(fetched.request, gradient)));
}

void DynamicTable::take_gradient() const {
  if (group_.several() || !fetched_.rows.defined()) return;
  const Fetched fetched = std::exchange(fetched_, {});
  const at::Tensor gradient = fetched.rows.grad();
  if (gradient.defined()) add_gradient(fetched.batch, gradient);
}

void DynamicTable::add_gradient(const DynamicRows::Batch& batch, const at::Tensor& gradient) const {
  returned_.push_back(
      {.batch = batch, .gradient = gradient.masked_fill(batch.slots.lt(0).unsqueeze(1), 0)});
}

// Adds the gradients of a step's batches. Of several batches on a GPU it reads the numbers of ids,
// which waits.
void DynamicTable::combine() const {
  take_gradient();
  if (returned_.size() < 2) return;
  std::vector<at::Tensor> ids, gradients;
  for (const Returned& returned : returned_) {
    const auto& unique = returned.batch.unique;
    const int64_t used = unique.limit.defined() ? unique.limit.item<int64_t>() : unique.size();
    ids.push_back(unique.ids.slice(0, 0, used));
    gradients.push_back(returned.gradient.slice(0, 0, used));
  }
  Returned all{.batch = {.unique = unique_ids(at::cat(ids)), .slots = {}}, .gradient = {}};
  all.gradient = sum_by_id(all.batch.unique, at::cat(gradients));
  all.batch.slots = rows_->table().find(all.batch.unique.ids, all.batch.unique.limit);
  all.batch.changes = rows_->table().changes();
  returned_ = {std::move(all)};
}

void DynamicTable::make_state(OptimizerKind kind, bool averaged) {
  SEQFUSE_CHECK_AS(UsageError, !averaged,
                   "table {}: a table of DynamicEmbeddingArgs has no averages of its rows: set "
                   "OptimizerArgs.average_decay to 0, or use EmbeddingArgs",
                   name_);
  DynamicRowsContents contents = rows_->contents();
  DynamicRowsOptions options = options_;
  options.optimizer = row_optimizer(kind);
  DynamicRows rows(options);
  contents.table.rows =
      at::constant_pad_nd(contents.table.rows.slice(1, 0, dim_), {0, rows.table().width() - dim_});
  rows.load(contents);
  // Nothing changes until everything is loaded.
  rows_ = std::move(rows);
  options_ = std::move(options);
  trained_ = true;
  zero_gradients();
}

void DynamicTable::zero_gradients() {
  returned_.clear();
  fetched_ = {};
}

at::Tensor DynamicTable::gradient() const {
  combine();
  return returned_.empty() ? at::Tensor() : returned_.front().gradient;
}

void DynamicTable::apply_gradients(UpdateStep& step) {
  SEQFUSE_CHECK(trained_, "table {}: apply_gradients without make_state", name_);
  combine();
  if (returned_.empty()) return;
  const Returned returned = std::move(returned_.front());
  returned_.clear();
  const config::OptimizerArgs& args = step.args();
  ops::hash_table::StepNumbers numbers;
  if (const UpdateStep::OnDevice* device = step.device()) {
    const RowUpdate update = ops::hash_table::row_update(options_.optimizer, 0, 1, args.adam_beta1,
                                                         args.adam_beta2, args.adam_eps, 1);
    numbers = {.count = device->count.const_data_ptr<float>(),
               .learning_rate = device->learning_rate.const_data_ptr<float>(),
               .scale = device->gradient_scale.const_data_ptr<float>(),
               .skip = device->skip.const_data_ptr<float>()};
    rows_->update_unique(update, returned.batch, returned.gradient, numbers);
    return;
  }
  const UpdateRule rule = step.rule(OptimizerKind::adam, /*weight_decay=*/0);
  RowUpdate update =
      ops::hash_table::row_update(options_.optimizer, rule.learning_rate, rule.gradient_scale,
                                  rule.beta1, rule.beta2, rule.epsilon, 1);
  update.rate = static_cast<float>(rule.learning_rate / rule.correction1);
  update.inverse_root = static_cast<float>(1 / std::sqrt(rule.correction2));
  rows_->update_unique(update, returned.batch, returned.gradient);
}

std::vector<std::string> DynamicTable::state_names() const {
  if (!trained_ || options_.optimizer == RowOptimizer::sgd) return {};
  if (options_.optimizer == RowOptimizer::adam) return {"exp_avg", "exp_avg_sq"};
  return {"sum_sq"};
}

TableContents DynamicTable::contents() const {
  DynamicRowsContents dynamic = rows_->contents();
  if (!group_.several()) return to_table(dynamic);
  at::Tensor shards, counted_shards;
  dynamic.table = exchange_.gather(dynamic.table, shards);
  if (options_.admit_from > 1) dynamic.counted = exchange_.gather(dynamic.counted, counted_shards);
  if (!group_.is_first()) return {};
  TableContents contents = to_table(dynamic);
  contents.state["shards"] = shards;
  if (counted_shards.defined()) contents.state["counted_shards"] = counted_shards;
  return contents;
}

TableContents DynamicTable::to_table(const DynamicRowsContents& dynamic) const {
  TableContents contents;
  contents.ids = dynamic.table.ids;
  contents.rows = dynamic.table.rows.slice(1, 0, dim_).contiguous();
  int64_t begin = dim_;
  for (const std::string& name : state_names()) {
    const bool one = options_.optimizer == RowOptimizer::row_wise_adagrad;
    const int64_t end = begin + (one ? 1 : dim_);
    const at::Tensor columns = dynamic.table.rows.slice(1, begin, end);
    contents.state[name] = (one ? columns.select(1, 0) : columns).contiguous();
    begin = end;
  }
  contents.state[kSharedRow] = dynamic.shared_row;
  put(contents.state, "", dynamic.table);
  if (options_.admit_from > 1) {
    put(contents.state, "counted_", dynamic.counted);
    contents.state["counted_ids"] = dynamic.counted.ids;
  }
  return contents;
}

DynamicRowsContents DynamicTable::to_dynamic(const TableContents& given,
                                             const LoadOptions& options) const {
  SEQFUSE_CHECK_AS(DataError, given.rows.defined(), "the checkpoint has no rows of table {}",
                   name_);
  SEQFUSE_CHECK_AS(
      DataError, given.rows.dim() == 2 && given.rows.size(1) == dim_,
      "the checkpoint's rows of table {} have {} weights, the model's have {}: it is of "
      "another architecture",
      name_, given.rows.size(-1), dim_);
  const int64_t count = given.size();
  const bool of_several = given.state.contains("shards");
  const int64_t room = group_.several() ? group_.size() * options_.table.capacity : capacity_;
  SEQFUSE_CHECK_AS(
      DataError, count <= room || of_several,
      "the checkpoint's table {} has {} rows; the capacity of the model's is {}: raise "
      "DynamicEmbeddingArgs.item_vocab_size_or_capacity",
      name_, count, capacity_);
  SEQFUSE_CHECK_AS(DataError,
                   !given.ids.defined() || (given.ids.scalar_type() == torch::kLong &&
                                            given.ids.dim() == 1 && given.ids.size(0) == count),
                   "the checkpoint's ids of table {} are not int64 [{}], one per row", name_,
                   count);
  DynamicRowsContents contents;
  contents.table.ids = given.ids.defined() ? given.ids : torch::arange(count, torch::kLong);
  SEQFUSE_CHECK_AS(DataError, std::get<0>(at::_unique2(contents.table.ids)).numel() == count,
                   "the checkpoint's table {} has {} ids more than once", name_,
                   count - std::get<0>(at::_unique2(contents.table.ids)).numel());
  std::vector<at::Tensor> columns = {given.rows.to(at::kFloat)};
  for (const std::string& name : state_names()) {
    const at::Tensor state = found(given.state, name);
    SEQFUSE_CHECK_AS(DataError, !options.state || state.defined(),
                     "the checkpoint's optimiser state of table {} has no {}: it was made with "
                     "another optimiser",
                     name_, name);
    const int64_t width = options_.optimizer == RowOptimizer::row_wise_adagrad ? 1 : dim_;
    SEQFUSE_CHECK_AS(
        DataError, !options.state || state.numel() == count * width,
        "the checkpoint's {} of table {} has {} numbers; expected {} for each of {} rows", name,
        name_, state.numel(), width, count);
    columns.push_back(options.state
                          ? state.to(at::kFloat).reshape({count, width})
                          : at::zeros({count, width}, given.rows.options().dtype(at::kFloat)));
  }
  contents.table.rows = at::cat(columns, 1);
  contents.shared_row = found(given.state, kSharedRow);
  if (options.state) {
    take(given.state, "", contents.table);
    take(given.state, "counted_", contents.counted);
    contents.counted.ids = found(given.state, "counted_ids");
    for (const auto& [what, one] : {std::pair("scores", &contents.table.scores),
                                    std::pair("touched", &contents.table.touched)}) {
      SEQFUSE_CHECK_AS(
          DataError, !one->defined() || one->numel() == count,
          "the checkpoint's {} of table {} are {} numbers; expected one for each of {} "
          "rows",
          what, name_, one->numel(), count);
    }
  }
  SEQFUSE_CHECK_AS(DataError, !contents.shared_row.defined() || contents.shared_row.numel() == dim_,
                   "the checkpoint's shared row of table {} has {} weights, the model's has {}",
                   name_, contents.shared_row.numel(), dim_);
  if (!group_.several() && count > capacity_) {
    log::warning("train",
                 "table {}: the checkpoint of several processes has {} rows, {} more than the "
                 "capacity: those with the lowest scores are left out",
                 name_, count, count - capacity_);
    keep_highest(contents.table, capacity_);
  }
  return contents;
}

void DynamicTable::check(const TableContents& given, const LoadOptions& options) const {
  DynamicRowsContents dynamic = to_dynamic(given, options);
  if (!group_.several()) return rows_->check(without_shards(std::move(dynamic), given.state));
  const at::Tensor rows = exchange_.rows_of_processes(dynamic.table.ids.cpu());
  const int64_t most = rows.max().item<int64_t>();
  SEQFUSE_CHECK_AS(
      DataError, most <= options_.table.capacity,
      "the checkpoint's table {} has {} rows for one of {} processes, which has room for "
      "{}: raise DynamicEmbeddingArgs.item_vocab_size_or_capacity, or set dist_type to "
      "'hash_roundrobin'",
      name_, most, group_.size(), options_.table.capacity);
}

void DynamicTable::load(const TableContents& given, const LoadOptions& options) {
  const torch::NoGradGuard no_grad;
  DynamicRowsContents dynamic;
  if (group_.is_first()) {
    check(given, options);
    dynamic = to_dynamic(given, options);
  }
  if (group_.several()) {
    const bool counts = options_.admit_from > 1;
    dynamic.table = exchange_.scatter(dynamic.table, found(given.state, "shards"));
    if (counts) {
      dynamic.counted = exchange_.scatter(dynamic.counted, found(given.state, "counted_shards"));
    }
    const bool has_row = group_.is_first() && dynamic.shared_row.defined();
    const at::Tensor shared = has_row ? dynamic.shared_row.cpu().to(at::kFloat).contiguous()
                                      : rows_->shared_row().cpu().clone();
    group_.broadcast({shared}, "broadcast of table " + name_);
    dynamic.shared_row = shared;
  } else {
    dynamic = without_shards(std::move(dynamic), given.state);
  }
  rows_->load(dynamic);
  fetched_ = {};
  returned_.clear();
}

}  // namespace seqfuse::embeddings
