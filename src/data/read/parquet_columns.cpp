#include "data/read/parquet_columns.h"

#include <arrow/compute/cast.h>
#include <arrow/extension_type.h>
#include <parquet/arrow/schema.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/read/arrow_result.h"

namespace seqfuse::data {
namespace {

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

}  // namespace

std::vector<int> leaf_columns(const parquet::arrow::FileReader& reader,
                              std::span<const int> fields) {
  std::vector<int> leaves;
  for (const int field : fields) {
    add_leaves(reader.manifest().schema_fields[static_cast<size_t>(field)], leaves);
  }
  std::sort(leaves.begin(), leaves.end());
  return leaves;
}

void check_single_value(const arrow::Field& field, const std::string& file) {
  if (!arrow::is_nested(field.type()->id())) return;
  throw_error<DataError>(
      "{}: column {} is {}: expected one number or text in each row\n"
      "  write the intended value as a separate column",
      file, field.name(), field.type()->ToString());
}

std::shared_ptr<arrow::Array> plain_values(std::shared_ptr<arrow::Array> array,
                                           const std::string& what) {
  for (;;) {
    if (array->type_id() == arrow::Type::EXTENSION) {
      array = static_cast<const arrow::ExtensionArray&>(*array).storage();
    } else if (array->type_id() == arrow::Type::DICTIONARY) {
      const auto& type = static_cast<const arrow::DictionaryType&>(*array->type());
      array = arrow_value<DataError>(arrow::compute::Cast(*array, type.value_type()), what);
    } else {
      return array;
    }
  }
}

std::shared_ptr<arrow::StringArray> as_strings(std::shared_ptr<arrow::Array> array,
                                               const std::string& what) {
  array = plain_values(std::move(array), what);
  if (array->type_id() == arrow::Type::TIMESTAMP) {
    array = arrow_value<DataError>(array->View(arrow::int64()), what);
  } else if (array->type_id() == arrow::Type::HALF_FLOAT) {
    array = arrow_value<DataError>(arrow::compute::Cast(*array, arrow::float32()), what);
  }
  arrow::compute::CastOptions options;
  options.allow_invalid_utf8 = true;
  return std::static_pointer_cast<arrow::StringArray>(
      arrow_value<DataError>(arrow::compute::Cast(*array, arrow::utf8(), options), what));
}

}  // namespace seqfuse::data
