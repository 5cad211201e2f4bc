#include "training/checkpoint/table_files.h"

#include "base/error.h"

namespace seqfuse::training {
namespace {

constexpr const char* kIds = "ids";

}  // namespace

TensorMap to_tensors(const std::string& table, const embeddings::TableContents& contents) {
  TensorMap tensors = {{table, contents.rows}};
  const std::string prefix = table + ".";
  if (contents.ids.defined()) tensors[prefix + kIds] = contents.ids;
  for (const auto& [name, tensor] : contents.state) tensors[prefix + name] = tensor;
  return tensors;
}

embeddings::TableContents to_contents(const std::string& table, const TensorMap& tensors,
                                      const std::string& file) {
  embeddings::TableContents contents;
  const std::string prefix = table + ".";
  for (const auto& [name, tensor] : tensors) {
    if (name == table) {
      contents.rows = tensor;
    } else if (name == prefix + kIds) {
      contents.ids = tensor;
    } else if (name.starts_with(prefix)) {
      contents.state[name.substr(prefix.size())] = tensor;
    } else {
      throw_error<DataError>("{}: tensor {} is not of table {}", file, name, table);
    }
  }
  SEQFUSE_CHECK_AS(DataError, contents.rows.defined(), "{}: no tensor {}, the rows of the table",
                   file, table);
  return contents;
}

void take_table_state(TensorMap& optimizer, const std::string& table,
                      embeddings::TableContents& contents) {
  const std::string prefix = "tables." + table + ".";
  for (auto entry = optimizer.begin(); entry != optimizer.end();) {
    if (!entry->first.starts_with(prefix)) {
      ++entry;
      continue;
    }
    contents.state[entry->first.substr(prefix.size())] = entry->second;
    entry = optimizer.erase(entry);
  }
}

}  // namespace seqfuse::training
