#include "training/checkpoint/weights.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "base/error.h"

namespace seqfuse::training {
namespace {

std::string shape_text(const torch::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

[[noreturn]] void fail_missing(const std::string& name, const std::string& shape) {
  throw_error<DataError>(
      "the checkpoint has no weight {} {}: it is of another architecture or size", name, shape);
}

[[noreturn]] void fail_unknown(const std::string& name, const std::string& shape) {
  throw_error<DataError>(
      "the checkpoint's weight {} {} is not in the model: it is of another architecture", name,
      shape);
}

// In blocks, since a mask of all rows would take a quarter of their memory.
bool all_finite(const torch::Tensor& tensor) {
  constexpr int64_t kBlock = int64_t{1} << 24;
  if (!tensor.is_floating_point()) return true;
  const torch::Tensor numbers = tensor.flatten();
  for (int64_t begin = 0; begin < numbers.numel(); begin += kBlock) {
    const int64_t end = std::min(numbers.numel(), begin + kBlock);
    if (!torch::isfinite(numbers.slice(0, begin, end)).all().item<bool>()) return false;
  }
  return true;
}

}  // namespace

std::string table_not_finite(const embeddings::Tables& tables, const TableMap& given) {
  for (const embeddings::EmbeddingTable* table : tables) {
    const auto found = given.find(table->name());
    if (table->weight().defined() || found == given.end()) continue;
    const std::string name = "tables." + table->name();
    const embeddings::TableContents& contents = found->second;
    if (contents.rows.defined() && !all_finite(contents.rows)) return name;
    for (const auto& [state, tensor] : contents.state) {
      if (tensor.defined() && !all_finite(tensor)) return state + " of " + name;
    }
  }
  return "";
}

TensorMap dense_weights(const torch::nn::Module& module, const embeddings::Tables& tables) {
  TensorMap weights;
  for (const auto& entry : module.named_parameters()) {
    const bool of_table = std::any_of(tables.begin(), tables.end(), [&](const auto* table) {
      return table->weight().is_same(entry.value());
    });
    if (!of_table) weights[entry.key()] = entry.value();
  }
  for (const auto& entry : module.named_buffers()) weights[entry.key()] = entry.value();
  return weights;
}

void collect_weights(const torch::nn::Module& module, const embeddings::Tables& tables,
                     Checkpoint& checkpoint) {
  for (const auto& [name, weight] : dense_weights(module, tables)) {
    checkpoint.dense[name] = weight.detach();
  }
  for (const auto* table : tables) checkpoint.tables[table->name()] = table->contents();
}

void check_same_weights(const torch::nn::Module& module, const embeddings::Tables& tables,
                        const Checkpoint& checkpoint, const embeddings::LoadOptions& options) {
  const TensorMap expected = dense_weights(module, tables);
  for (const auto& [name, weight] : expected) {
    const auto found = checkpoint.dense.find(name);
    if (found == checkpoint.dense.end()) fail_missing(name, shape_text(weight));
    if (found->second.sizes() != weight.sizes()) {
      throw_error<DataError>(
          "the checkpoint's {} is {}, the model's is {}: it is of another architecture or "
          "vocabulary",
          name, shape_text(found->second), shape_text(weight));
    }
  }
  for (const auto& [name, tensor] : checkpoint.dense) {
    if (!expected.contains(name)) fail_unknown(name, shape_text(tensor));
  }
  for (const auto* table : tables) {
    const auto found = checkpoint.tables.find(table->name());
    if (found == checkpoint.tables.end()) {
      fail_missing("tables." + table->name(),
                   fmt::format("[{}, {}]", table->num_rows(), table->dim()));
    }
    table->check(found->second, options);
  }
  for (const auto& [name, contents] : checkpoint.tables) {
    const bool known = std::any_of(tables.begin(), tables.end(),
                                   [&](const auto* table) { return table->name() == name; });
    if (!known) fail_unknown("tables." + name, shape_text(contents.rows));
  }
}

void load_dense(torch::nn::Module& module, const embeddings::Tables& tables,
                const Checkpoint& checkpoint) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, weight] : dense_weights(module, tables)) {
    torch::Tensor(weight).copy_(checkpoint.dense.at(name));
  }
}

void load_tables(const embeddings::Tables& tables, const TableMap& given,
                 const embeddings::LoadOptions& options) {
  for (embeddings::EmbeddingTable* table : tables) {
    const auto found = given.find(table->name());
    table->load(found == given.end() ? embeddings::TableContents() : found->second, options);
  }
}

void load_weights(torch::nn::Module& module, const embeddings::Tables& tables,
                  const Checkpoint& checkpoint) {
  const embeddings::LoadOptions rows_alone{.state = false};
  check_same_weights(module, tables, checkpoint, rows_alone);
  load_dense(module, tables, checkpoint);
  load_tables(tables, checkpoint.tables, rows_alone);
}

}  // namespace seqfuse::training
