// A vocabulary file: the raw ids of items, users or values of a context feature, by index.
#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/manifest.h"

namespace seqfuse::data {

// Both throw DataError; remedy: the advice in the message.
void check_exists(const std::filesystem::path& file, std::string_view remedy);
void check_hash(const std::filesystem::path& file, const std::string& found,
                const std::string& expected, std::string_view remedy);

// Ids and, if present, titles; memory-mapped. Ids ascend: integers by value, then others bytewise.
// Rows count from 0.
class IdColumn {
 public:
  IdColumn() = default;
  // Throws DataError if the file is missing or does not match the entry.
  IdColumn(const std::filesystem::path& directory, const VocabularyEntry& entry,
           std::string_view remedy);

  std::string_view id(int64_t row) const { return at(ids_, row); }
  std::string_view title(int64_t row) const {
    return titles_.empty() ? std::string_view() : at(titles_, row);
  }
  std::optional<int64_t> find(std::string_view id) const;

 private:
  using Arrays = std::vector<std::shared_ptr<arrow::StringArray>>;

  std::string_view at(const Arrays& arrays, int64_t row) const {
    return arrays[static_cast<size_t>(row / batch_)]->GetView(row % batch_);
  }

  Arrays ids_, titles_;  // in batches of equal length (but the last)
  int64_t size_ = 0, batch_ = 1;
};

}  // namespace seqfuse::data
