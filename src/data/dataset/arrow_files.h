// The Arrow IPC files of a dataset directory: sequences (one row per user) and vocabularies.
#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/read/arrow_result.h"

namespace seqfuse::data {

// A column of a record batch. Throws DataError if it is missing, of another type or partly null.
template <class ArrowArray>
std::shared_ptr<ArrowArray> column(const arrow::RecordBatch& batch, const std::string& name,
                                   const std::string& file) {
  auto array = std::dynamic_pointer_cast<ArrowArray>(batch.GetColumnByName(name));
  if (!array || array->null_count() > 0) {
    throw_error<DataError>("{}: column {} is {}", file, name,
                           array ? "partly null" : "missing or of another type");
  }
  return array;
}

// Some users' rows, in order. Sequence columns are jagged: user r has [offsets[r], offsets[r + 1]).
struct SequenceColumns {
  std::vector<int64_t> users;                 // [R] indices
  std::vector<std::vector<int64_t>> context;  // per feature: [R]
  std::vector<int32_t> offsets = {0};         // [R + 1]
  std::vector<int64_t> items;                 // [T]
  std::vector<int64_t> actions;               // [T], or empty if the dataset has none
  std::vector<int64_t> timestamps;            // [T], or empty if the dataset has none

  void clear();  // removes all rows; keeps features and memory
};

// One record batch: user, context columns, items, actions, timestamps. Returns the file's hash.
// Throws IoError.
std::string write_sequences(const std::filesystem::path& file, const SequenceColumns& columns,
                            const std::vector<std::string>& context_names);

// Columns id and, if title is given, title; row r is index r + 1. text(r) may be called in any
// order. Returns the file's hash.
std::string write_vocabulary(const std::filesystem::path& file, int64_t size,
                             const std::function<std::string(int64_t)>& id,
                             const std::function<std::string(int64_t)>& title = nullptr);

// Returns all record batches, memory-mapped. bytes (optional): the mapping they point into. Throws
// DataError naming the file.
std::vector<std::shared_ptr<arrow::RecordBatch>> map_arrow_file(
    const std::filesystem::path& file, std::shared_ptr<arrow::Buffer>* bytes = nullptr);

}  // namespace seqfuse::data
