// A summary of a log's columns for people to check: kinds of values, blanks, examples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace seqfuse::data {

struct SurveyedColumn {
  static constexpr size_t kExamples = 3;
  static constexpr size_t kMostDistinct = 100'000;

  std::string name;
  int64_t values = 0, blank = 0;          // values: also blank ones
  int64_t integers = 0;                   // written as such
  int64_t numbers = 0;                    // all others that are numbers
  int64_t whole_decimals = 0;             // of these: integers with a point, such as 12.0
  int64_t dates = 0;                      // ISO 8601
  int64_t nulls = 0;                      // the words nan, na, null, none, nil
  double lowest = 0, highest = 0;         // of integers and numbers
  std::vector<std::string> examples;      // the first distinct values
  std::string whole_decimal, null;        // the first of these
  std::unordered_set<uint64_t> distinct;  // hashes of values, at most kMostDistinct

  bool is_full() const { return distinct.size() >= kMostDistinct; }  // there may be more values
  // "integer", "number", "date", "text" or "blank", if all values are; else "mixed".
  std::string type() const;
};

// Used by one thread.
class ColumnSurvey {
 public:
  // One row. Columns without a name are left out; columns are matched by name.
  void add(std::span<const std::string> names, std::span<const std::string_view> fields);

  // Only some columns of a row.
  void add(std::span<const std::string> names, std::span<const std::string_view> fields,
           std::span<const int> which);

  const std::vector<SurveyedColumn>& columns() const { return columns_; }
  const SurveyedColumn* find(std::string_view name) const;
  int64_t rows() const { return rows_; }

 private:
  SurveyedColumn& column(size_t at, const std::string& name);

  std::vector<SurveyedColumn> columns_;
  int64_t rows_ = 0;
};

}  // namespace seqfuse::data
