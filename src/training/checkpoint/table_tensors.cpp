#include "training/checkpoint/table_tensors.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "training/checkpoint/weights.h"

namespace seqfuse::training {
namespace {

// Puts here in the place of a whole tensor, which it gives back.
torch::Tensor exchange_whole(const embeddings::EmbeddingTable& table, const std::string& name,
                             torch::Tensor& tensor, const torch::Tensor& here) {
  std::vector<int64_t> expected = here.sizes().vec();
  expected[0] = table.num_rows();
  if (tensor.sizes() != at::IntArrayRef(expected)) {
    std::ostringstream shapes;
    shapes << tensor.sizes() << ", the model's is " << at::IntArrayRef(expected);
    throw_error<DataError>("the checkpoint's {} is {}: it is of another architecture or vocabulary",
                           name, shapes.str());
  }
  return std::exchange(tensor, here);
}

}  // namespace

TableTensors::TableTensors(embeddings::Tables tables) : tables_(std::move(tables)) {}

const embeddings::EmbeddingTable* TableTensors::table_of(const std::string& name) const {
  if (!name.starts_with(kTablePrefix)) return nullptr;
  const std::string_view rest = std::string_view(name).substr(kTablePrefix.size());
  for (const embeddings::EmbeddingTable* table : tables_) {
    if (rest.substr(0, rest.find('.')) == table->name()) return table;
  }
  return nullptr;
}

void TableTensors::gather(Checkpoint& checkpoint) const {
  for (const embeddings::EmbeddingTable* table : tables_) {
    checkpoint.tables[table->name()] = table->gather(table->weight().detach());
  }
  for (auto& [name, tensor] : checkpoint.optimizer) {
    if (const auto* table = table_of(name)) tensor = table->gather(tensor);
  }
}

TensorMap TableTensors::take_whole(Checkpoint& checkpoint, const TensorMap& here) const {
  TensorMap whole;
  const auto take = [&](const std::string& name, torch::Tensor& tensor) {
    const embeddings::EmbeddingTable* table = table_of(name);
    const auto mine = here.find(name);
    if (!table || !table->is_sharded() || mine == here.end()) return;
    whole[name] = exchange_whole(*table, name, tensor, mine->second);
  };
  for (auto& [name, tensor] : checkpoint.tables) take(std::string(kTablePrefix) + name, tensor);
  for (auto& [name, tensor] : checkpoint.optimizer) take(name, tensor);
  return whole;
}

void TableTensors::share(const TensorMap& here, const TensorMap& whole,
                         distributed::ProcessGroup& group) const {
  // The first process alone knows whether it has read a checkpoint.
  auto names = nlohmann::json::object();
  for (const auto& [name, tensor] : whole) names[name] = true;
  names = nlohmann::json::parse(group.broadcast(names.dump(), "broadcast of the state"));
  for (const auto& [name, tensor] : here) {
    const embeddings::EmbeddingTable* table = table_of(name);
    if (!table) {
      group.broadcast(std::vector{tensor}, "broadcast of weights");
    } else if (!table->is_sharded()) {
      table->scatter(tensor, tensor);
    } else if (names.contains(name)) {
      table->scatter(group.is_first() ? whole.at(name) : torch::Tensor(), tensor);
    }
  }
}

}  // namespace seqfuse::training
