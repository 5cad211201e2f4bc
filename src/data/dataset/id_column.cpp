#include "data/dataset/id_column.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "data/dataset/arrow_files.h"
#include "data/read/field_values.h"

namespace seqfuse::data {
namespace fs = std::filesystem;
namespace {

// The order of ids in a vocabulary: integers first, ascending, then other ids bytewise.
bool id_less(std::string_view a, std::string_view b) {
  const auto number_a = parse_canonical_int64(a), number_b = parse_canonical_int64(b);
  if (number_a && number_b) return *number_a < *number_b;
  if (number_a || number_b) return number_a.has_value();
  return a < b;
}

}  // namespace

void check_exists(const fs::path& file, std::string_view remedy) {
  if (fs::exists(file)) return;
  throw_error<DataError>("{} is missing, but the manifest names it\n  {}", file.string(), remedy);
}

void check_hash(const fs::path& file, const std::string& found, const std::string& expected,
                std::string_view remedy) {
  if (found == expected) return;
  throw_error<DataError>(
      "{} is corrupt: its hash is {}, the manifest says {}\n  copy it again, or {}", file.string(),
      found, expected, remedy);
}

IdColumn::IdColumn(const fs::path& directory, const VocabularyEntry& entry,
                   std::string_view remedy) {
  const fs::path file = directory / entry.file;
  check_exists(file, remedy);
  check_hash(file, hash_file(file), entry.hash, remedy);
  for (const auto& batch : map_arrow_file(file)) {
    ids_.push_back(column<arrow::StringArray>(*batch, "id", file.string()));
    if (batch->schema()->GetFieldIndex("title") >= 0) {
      titles_.push_back(column<arrow::StringArray>(*batch, "title", file.string()));
    }
    size_ += batch->num_rows();
  }
  if (size_ != entry.size) {
    throw_error<DataError>("{} has {} ids, the manifest says {}", file.string(), size_, entry.size);
  }
  batch_ = ids_.empty() ? 1 : std::max<int64_t>(1, ids_[0]->length());
}

std::optional<int64_t> IdColumn::find(std::string_view wanted) const {
  int64_t low = 0, high = size_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (id_less(id(middle), wanted)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == size_ || id(low) != wanted) return std::nullopt;
  return low;
}

}  // namespace seqfuse::data
