#include "data/dataset/parquet_dataset.h"

#include <arrow/compute/cast.h>
#include <arrow/io/file.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/read/arrow_result.h"
#include "data/read/field_values.h"
#include "data/read/parquet_columns.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {
namespace fs = std::filesystem;
namespace {

std::vector<fs::path> sequence_files(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory / "sequences", ignored)) {
    if (entry.path().extension() == ".parquet") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

constexpr int64_t kMostActionBits = (int64_t{1} << 31) - 1;

class ParquetDataset final : public Dataset {
 public:
  explicit ParquetDataset(const fs::path& directory) {
    directory_ = directory;
    manifest_.dataset_name = "parquet";
    for (const fs::path& file : sequence_files(directory)) read(file);
    manifest_.num_users = static_cast<int64_t>(offsets_.size()) - 1;
    manifest_.num_events = static_cast<int64_t>(items_.size());
    if (manifest_.num_events == 0) throw_error<DataError>("{} holds no events", directory.string());
    manifest_.num_items = *std::max_element(items_.begin(), items_.end());
    if (manifest_.action_kind != ActionKind::none) count_actions();
    std::string identity = fmt::format("parquet {}", manifest_.num_items);
    for (size_t f = 0; f < context_.size(); ++f) {
      manifest_.context[f].vocab_size =
          *std::max_element(context_[f].begin(), context_[f].end()) + 1;
      identity += fmt::format(" {} {}", manifest_.context[f].name, manifest_.context[f].vocab_size);
    }
    manifest_.hash = hash_text(identity);
  }

  UserSequence user(int64_t row) const override {
    const auto part = [&](const std::vector<int64_t>& values) {
      if (values.empty()) return std::span<const int64_t>();
      const auto begin = static_cast<size_t>(offsets_[static_cast<size_t>(row)]);
      const auto end = static_cast<size_t>(offsets_[static_cast<size_t>(row) + 1]);
      return std::span(values).subspan(begin, end - begin);
    };
    return {part(items_), part(actions_), part(timestamps_)};
  }
  int64_t context(int64_t feature, int64_t row) const override {
    return context_[static_cast<size_t>(feature)][static_cast<size_t>(row)];
  }
  std::string item_id(int64_t item) const override { return std::to_string(item); }
  std::string item_title(int64_t /*item*/) const override { return ""; }
  std::optional<int64_t> find_item(std::string_view id) const override {
    const auto item = parse_canonical_int64(id);
    return item && *item >= 1 && *item <= num_items() ? item : std::nullopt;
  }
  std::string user_id(int64_t row) const override { return user_ids_[static_cast<size_t>(row)]; }
  std::optional<int64_t> find_user(std::string_view id) const override {
    const auto found = user_rows_.find(std::string(id));
    if (found == user_rows_.end()) return std::nullopt;
    return found->second;
  }

 private:
  void read(const fs::path& path) {
    const std::string name = path.string();
    const auto file = arrow_value<DataError>(
        arrow::io::MemoryMappedFile::Open(name, arrow::io::FileMode::READ), name);
    // Page checksums are optional in the format; verify those that exist.
    parquet::ReaderProperties properties;
    properties.set_page_checksum_verification(true);
    parquet::arrow::FileReaderBuilder builder;
    arrow_check<DataError>(builder.Open(file, properties), name);
    const auto reader = arrow_value<DataError>(builder.Build(), name);
    if (reader->num_row_groups() == 0 || reader->parquet_reader()->metadata()->num_rows() == 0) {
      return;
    }
    std::shared_ptr<arrow::Schema> schema;
    arrow_check<DataError>(reader->GetSchema(&schema), name);
    read_schema(*schema, name);
    const std::vector<int> leaves = leaf_columns(*reader, fields_to_read(*schema, name));
    std::vector<std::shared_ptr<arrow::Table>> groups;
    for (int g = 0; g < reader->num_row_groups(); ++g) {
      groups.push_back(arrow_value<DataError>(reader->ReadRowGroup(g, leaves),
                                              fmt::format("{}, row group {}", name, g)));
    }
    const auto chunked = arrow_value<DataError>(arrow::ConcatenateTables(groups), name);
    const auto table = arrow_value<DataError>(chunked->CombineChunks(), name);
    read_lists(*table, name);
    for (size_t f = 0; f < context_.size(); ++f) {
      const size_t before = context_[f].size();
      const auto values =
          cast<arrow::Int64Array>(*table, manifest_.context[f].name, arrow::int64(), name);
      context_[f].insert(context_[f].end(), values->raw_values(),
                         values->raw_values() + values->length());
      check_not_negative(std::span(context_[f]).subspan(before), manifest_.context[f].name, name);
    }
    read_users(*table, name);
  }

  void read_users(const arrow::Table& table, const std::string& file) {
    const auto users = has_users_ ? cast<arrow::StringArray>(table, "user", arrow::utf8(), file)
                                  : std::shared_ptr<arrow::StringArray>();
    for (int64_t row = 0; row < table.num_rows(); ++row) {
      const auto number = static_cast<int64_t>(user_ids_.size());
      user_ids_.push_back(users ? users->GetString(row) : std::to_string(number + 1));
      if (!user_rows_.emplace(user_ids_.back(), number).second) {
        throw_error<DataError>(
            "{}: row {} is a second row of user '{}'\n"
            "  write one row per user: group all of the user's events, over all files",
            file, row, excerpt(user_ids_.back()));
      }
    }
  }

  // The first file decides the columns; all other files must have them too.
  void read_schema(const arrow::Schema& schema, const std::string& file) {
    if (offsets_.size() > 1) return;
    if (schema.GetFieldIndex("items") < 0) {
      throw_error<DataError>("{} has no column items; docs/data.md lists the columns", file);
    }
    const bool bits = schema.GetFieldIndex("action_bits") >= 0;
    has_users_ = schema.GetFieldIndex("user") >= 0;
    manifest_.has_timestamps = schema.GetFieldIndex("timestamps") >= 0;
    manifest_.action_kind = bits                                   ? ActionKind::bits
                            : schema.GetFieldIndex("actions") >= 0 ? ActionKind::classes
                                                                   : ActionKind::none;
    for (const auto& field : schema.fields()) {
      if (field->name() == "user" || !is_integer(*field->type())) continue;
      manifest_.context.push_back({field->name(), 0});
    }
    context_.resize(manifest_.context.size());
  }

  static bool is_integer(const arrow::DataType& type) {
    if (type.id() != arrow::Type::DICTIONARY) return arrow::is_integer(type);
    return arrow::is_integer(*static_cast<const arrow::DictionaryType&>(type).value_type());
  }

  // Indices of the fields to read; other columns are ignored.
  std::vector<int> fields_to_read(const arrow::Schema& schema, const std::string& file) const {
    std::vector<std::string> lists = {"items"}, values;
    if (manifest_.action_kind == ActionKind::bits) lists.emplace_back("action_bits");
    if (manifest_.action_kind == ActionKind::classes) lists.emplace_back("actions");
    if (manifest_.has_timestamps) lists.emplace_back("timestamps");
    if (has_users_) values.emplace_back("user");
    for (const ContextFeature& feature : manifest_.context) values.push_back(feature.name);
    std::vector<int> fields;
    const auto add = [&](const std::string& column) -> const arrow::Field& {
      const std::vector<int> found = schema.GetAllFieldIndices(column);
      if (found.size() != 1) {
        throw_error<DataError>("{}: column {} is {}", file, column,
                               found.empty() ? "missing" : "present more than once");
      }
      fields.push_back(found[0]);
      return *schema.field(found[0]);
    };
    for (const std::string& column : values) check_single_value(add(column), file);
    for (const std::string& column : lists) {
      const arrow::Field& field = add(column);
      if (arrow::is_list_like(field.type()->id()) || arrow::is_list_view(*field.type())) continue;
      throw_error<DataError>("{}: column {} is {}: expected a list of integers in each row", file,
                             column, field.type()->ToString());
    }
    return fields;
  }

  template <class ArrowArray>
  static std::shared_ptr<ArrowArray> cast(const arrow::Table& table, const std::string& column,
                                          const std::shared_ptr<arrow::DataType>& type,
                                          const std::string& file) {
    const std::string what = fmt::format("{}: column {}", file, column);
    const auto array = plain_values(table.GetColumnByName(column)->chunk(0), what);
    const auto result = std::static_pointer_cast<ArrowArray>(
        arrow_value<DataError>(arrow::compute::Cast(*array, type), what));
    if (result->null_count() > 0) throw_error<DataError>("{} is partly null", what);
    return result;
  }

  void read_lists(const arrow::Table& table, const std::string& file) {
    const auto type = arrow::large_list(arrow::int64());
    const auto items = cast<arrow::LargeListArray>(table, "items", type, file);
    append(*items, "items", file, items_);
    const auto add_beside = [&](const char* column, std::vector<int64_t>& values) {
      const auto lists = cast<arrow::LargeListArray>(table, column, type, file);
      for (int64_t row = 0; row < items->length(); ++row) {
        if (lists->value_length(row) != items->value_length(row)) {
          throw_error<DataError>("{}: row {} has {} items but {} {}", file, row,
                                 items->value_length(row), lists->value_length(row), column);
        }
      }
      append(*lists, column, file, values);
    };
    if (manifest_.action_kind != ActionKind::none) {
      add_beside(manifest_.action_kind == ActionKind::bits ? "action_bits" : "actions", actions_);
    }
    if (manifest_.has_timestamps) add_beside("timestamps", timestamps_);
    for (int64_t row = 0; row < items->length(); ++row) {
      const auto begin = timestamps_.begin() + (manifest_.has_timestamps ? offsets_.back() : 0);
      offsets_.push_back(offsets_.back() + items->value_length(row));
      if (manifest_.has_timestamps &&
          !std::is_sorted(begin, timestamps_.begin() + offsets_.back())) {
        throw_error<DataError>("{}: timestamps of row {} decrease: sort each user's events", file,
                               row);
      }
    }
  }

  static void append(const arrow::LargeListArray& lists, const std::string& column,
                     const std::string& file, std::vector<int64_t>& out) {
    const auto& values = static_cast<const arrow::Int64Array&>(*lists.values());
    const int64_t begin = lists.value_offset(0), end = lists.value_offset(lists.length());
    if (values.null_count() > 0)
      throw_error<DataError>("{}: column {} is partly null", file, column);
    const size_t before = out.size();
    out.insert(out.end(), values.raw_values() + begin, values.raw_values() + end);
    if (column != "timestamps") check_not_negative(std::span(out).subspan(before), column, file);
  }

  static void check_not_negative(std::span<const int64_t> values, const std::string& column,
                                 const std::string& file) {
    const auto negative =
        std::find_if(values.begin(), values.end(), [](int64_t v) { return v < 0; });
    if (negative != values.end()) {
      throw_error<DataError>("{}: column {} holds {}: indices and labels are 0 or more", file,
                             column, *negative);
    }
  }

  void count_actions() {
    const int64_t highest = *std::max_element(actions_.begin(), actions_.end());
    const bool is_bits = manifest_.action_kind == ActionKind::bits;
    if (const int64_t most = is_bits ? kMostActionBits : kMostLabels - 1; highest > most) {
      throw_error<DataError>(
          "{}: column {} holds {}, but at most {} is possible: is it the right column?",
          directory_.string(), is_bits ? "action_bits" : "actions", highest, most);
    }
    int64_t bits = 1;
    while (highest >> bits > 0) ++bits;
    manifest_.num_actions = is_bits ? int64_t{1} << bits : highest + 1;
    for (int64_t a = 0; a < (is_bits ? bits : highest + 1); ++a) {
      manifest_.action_names.push_back(std::to_string(a));
    }
  }

  std::vector<int64_t> offsets_ = {0}, items_, actions_, timestamps_;
  std::vector<std::vector<int64_t>> context_;
  bool has_users_ = false;
  std::vector<std::string> user_ids_;
  std::unordered_map<std::string, int64_t> user_rows_;
};

}  // namespace

bool has_parquet_sequences(const fs::path& directory) {
  return !sequence_files(directory).empty();
}

std::shared_ptr<const Dataset> open_parquet_dataset(const fs::path& directory) {
  return std::make_shared<ParquetDataset>(directory);
}

}  // namespace seqfuse::data
