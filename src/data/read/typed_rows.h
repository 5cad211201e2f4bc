// Rows of a file with typed columns (Parquet) as text fields, so that the same rules apply to them as to
// delimited text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/read/input.h"

namespace seqfuse::data {

class TypedRows {
 public:
  virtual ~TypedRows() = default;

  virtual const std::vector<std::string>& names() const = 0;
  // Units per second of a timestamp column.
  virtual std::optional<int64_t> units_per_second(int column) const = 0;

  // Reads only these columns; the other fields stay "". Timestamps of the column `time` (-1: none)
  // are converted to this unit, with decimals. Throws DataError for nested columns.
  virtual void select(const std::vector<int>& columns, int time, int64_t units_per_second) = 0;

  virtual bool next_batch() = 0;  // false at the end
  virtual bool next() = 0;        // the next row of the batch; false at its end
  virtual std::span<const std::string_view> fields() const = 0;  // null is ""
  // Why the row is malformed (text that is not UTF-8), or "".
  virtual std::string problem() const = 0;

  virtual int64_t bytes() const = 0;  // of the file
  virtual std::string hash() const = 0;
};

// The first bytes of a file that tell its format.
inline constexpr size_t kMarkBytes = 4;

// Reads a file of typed rows; null for any other, by its name (without .gz) or its first kMarkBytes. stream:
// from its first byte. location: in messages. Throws DataError.
std::unique_ptr<TypedRows> open_typed_rows(std::string_view name, PeekedStream& stream,
                                           const std::string& location);

}  // namespace seqfuse::data
