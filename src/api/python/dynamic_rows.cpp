#include "api/python/dynamic_rows.h"

#include <fmt/ranges.h>

#include <span>
#include <string_view>
#include <utility>

#include "api/python/errors.h"
#include "base/names.h"

namespace seqfuse::api {
namespace {

namespace op = ops::hash_table;

using embeddings::DynamicRowsOptions;
using embeddings::HashTableContents;

// The index of a word among the choices.
template <class Choice>
Choice choice(const std::string& what, const std::string& word,
              std::span<const std::string> choices) {
  for (size_t i = 0; i < choices.size(); ++i) {
    if (word == choices[i]) return static_cast<Choice>(i);
  }
  throw_error<UsageError>("{} is '{}'{}; expected {}", what, word, did_you_mean(word, choices),
                          fmt::join(choices, ", "));
}

const std::string kOptimizers[] = {"sgd", "adam", "adagrad", "row_wise_adagrad"};
const std::string kScores[] = {"lru", "lfu", "step", "custom", "time_frequency", "frequency_time"};
const std::string kInits[] = {"constant", "uniform", "normal", "truncated_normal"};

DynamicRowsOptions options_of(const DynamicRows::Numbers& integers,
                              const c10::Dict<std::string, double>& reals,
                              const c10::Dict<std::string, std::string>& words, at::Device device) {
  DynamicRowsOptions options;
  options.optimizer = choice<op::RowOptimizer>("optimizer", words.at("optimizer"), kOptimizers);
  options.admit_from = integers.at("admit_from");
  options.counted_ids = integers.at("counted_ids");
  options.failure_is_error = integers.at("failure_is_error") != 0;
  embeddings::HashTableOptions& table = options.table;
  table.name = words.at("name");
  table.capacity = integers.at("capacity");
  table.initial_capacity = integers.at("initial_capacity");
  table.dim = integers.at("dim");
  table.score = choice<op::Score>("score", words.at("score"), kScores);
  table.evict = integers.at("evict") != 0;
  table.in_order = integers.at("in_order") != 0;
  table.list_evicted = integers.at("list_evicted");
  table.device_rows = integers.at("device_rows");
  table.cached = integers.at("cached") != 0;
  table.device = device;
  table.init = {.kind = choice<op::RowInit::Kind>("init", words.at("init"), kInits),
                .a = reals.at("a"),
                .b = reals.at("b"),
                .lower = reals.at("lower"),
                .upper = reals.at("upper"),
                .seed = static_cast<uint64_t>(integers.at("seed"))};
  return options;
}

void put(DynamicRows::Tensors& to, const std::string& prefix, const HashTableContents& table) {
  to.insert(prefix + "ids", table.ids);
  if (table.rows.defined()) to.insert(prefix + "rows", table.rows);
  to.insert(prefix + "scores", table.scores);
  to.insert(prefix + "touched", table.touched);
  to.insert(prefix + "slots", table.slots);
  to.insert(prefix + "table", torch::tensor({table.capacity, table.calls}, torch::kLong));
}

HashTableContents take(const DynamicRows::Tensors& from, const std::string& prefix) {
  const auto find = [&](const char* name) {
    const auto entry = from.find(prefix + name);
    return entry == from.end() ? at::Tensor() : entry->value();
  };
  HashTableContents table{.ids = find("ids"),
                          .rows = find("rows"),
                          .scores = find("scores"),
                          .touched = find("touched"),
                          .slots = find("slots")};
  const at::Tensor numbers = find("table");
  if (numbers.defined()) {
    SEQFUSE_CHECK_AS(DataError, numbers.numel() == 2,
                     "{}table has {} numbers; expected the capacity and the calls", prefix,
                     numbers.numel());
    table.capacity = numbers[0].item<int64_t>();
    table.calls = numbers[1].item<int64_t>();
  }
  return table;
}

void check_ids(const at::Tensor& ids, at::Device device) {
  TORCH_CHECK_VALUE(ids.scalar_type() == at::kLong, "ids are ", ids.scalar_type(),
                    "; expected Long (int64)");
  TORCH_CHECK_VALUE(ids.device() == device, "ids are on ", ids.device(), "; the table is on ",
                    device);
}

}  // namespace

DynamicRows::DynamicRows(const Numbers& integers, const c10::Dict<std::string, double>& reals,
                         const c10::Dict<std::string, std::string>& words, at::Device device)
    : rows_(with_python_errors(
          [&] { return embeddings::DynamicRows(options_of(integers, reals, words, device)); })) {}

DynamicRows::Batch DynamicRows::fetch(const at::Tensor& ids,
                                      const std::optional<at::Tensor>& scores,
                                      std::optional<int64_t> step) {
  check_ids(ids, rows_.options().table.device);
  return with_python_errors([&] {
    auto batch = c10::make_intrusive<DynamicBatch>();
    batch->batch = rows_.fetch_each(ids, {.custom = scores.value_or(at::Tensor()), .step = step});
    return batch;
  });
}

at::Tensor DynamicRows::look_up(const at::Tensor& ids) {
  check_ids(ids, rows_.options().table.device);
  return rows_.look_up(ids);
}

void DynamicRows::prefetch(const at::Tensor& ids) {
  check_ids(ids, rows_.options().table.device);
  rows_.prefetch([&] { return ids; }, /*after_all=*/true);
}

at::Tensor DynamicRows::rows(const Batch& batch) const {
  return rows_.rows(batch->batch);
}

void DynamicRows::update(const Batch& batch, const at::Tensor& gradients, double learning_rate,
                         double beta1, double beta2, double epsilon, int64_t t) {
  rows_.update(op::row_update(rows_.options().optimizer, learning_rate, /*scale=*/1, beta1, beta2,
                              epsilon, static_cast<double>(t)),
               batch->batch, gradients);
}

void DynamicRows::erase(const at::Tensor& ids) {
  check_ids(ids, rows_.options().table.device);
  rows_.table().erase(ids.flatten().contiguous());
}

void DynamicRows::check_failures() {
  rows_.check_failures();
}

at::Tensor DynamicRows::contains(const at::Tensor& ids) const {
  check_ids(ids, rows_.options().table.device);
  return rows_.table().find(ids.flatten().contiguous()).ge(0);
}

DynamicRows::Numbers DynamicRows::counts() const {
  const embeddings::HashTableCounts counts = rows_.table().counts();
  Numbers numbers;
  numbers.insert("size", counts.size);
  numbers.insert("capacity", rows_.table().capacity());
  numbers.insert("bytes", rows_.table().bytes());
  numbers.insert("host_bytes", rows_.table().host_bytes());
  numbers.insert("failed", counts.failed);
  numbers.insert("evicted", counts.evicted);
  numbers.insert("early", counts.early);
  numbers.insert("unknown", rows_.unknown());
  return numbers;
}

std::tuple<at::Tensor, at::Tensor, int64_t> DynamicRows::take_evicted() {
  const embeddings::HashTable::EvictedIds evicted = rows_.table().take_evicted();
  return {evicted.ids, evicted.scores, evicted.left_out};
}

DynamicRows::Tensors DynamicRows::contents(int64_t since) const {
  const embeddings::DynamicRowsContents contents = rows_.contents(since);
  Tensors tensors;
  put(tensors, "", contents.table);
  if (contents.counted.ids.defined()) put(tensors, "counted_", contents.counted);
  tensors.insert("shared_row", contents.shared_row);
  return tensors;
}

DynamicRows::Tensors DynamicRows::finish_snapshot() {
  const embeddings::DynamicRows::Snapshot snapshot = rows_.finish_snapshot();
  Tensors tensors;
  put(tensors, "", snapshot.table.keys);
  tensors.insert("by_slot", snapshot.table.by_slot);
  tensors.insert("late", snapshot.table.late);
  tensors.insert("late_rows", snapshot.table.late_rows);
  if (snapshot.others.counted.ids.defined()) put(tensors, "counted_", snapshot.others.counted);
  tensors.insert("shared_row", snapshot.others.shared_row);
  return tensors;
}

void DynamicRows::load(const Tensors& contents) {
  with_python_errors([&] {
    embeddings::DynamicRowsContents given{
        .table = take(contents, ""), .counted = take(contents, "counted_"), .shared_row = {}};
    const auto shared = contents.find("shared_row");
    if (shared != contents.end()) given.shared_row = shared->value();
    SEQFUSE_CHECK_AS(DataError, given.table.ids.defined() && given.table.rows.defined(),
                     "table {}: the contents have no ids or no rows", rows_.options().table.name);
    rows_.load(given);
  });
}

}  // namespace seqfuse::api
