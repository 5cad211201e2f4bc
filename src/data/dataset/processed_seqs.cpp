#include "data/dataset/processed_seqs.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "data/read/field_values.h"

namespace seqfuse::data {
namespace {

struct ColumnNames {
  const char *item, *action, *time;
};

ColumnNames column_names(const std::string& dataset_name) {
  if (dataset_name.starts_with("ml-")) return {"movie_id", "rating", "unix_timestamp"};
  if (dataset_name.starts_with("kuairand-")) return {"video_id", "action_weights", "time_ms"};
  return {"item_id", "action", "timestamp"};
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + '"';
}

// An id within a list: integers unquoted, other ids as JSON strings with quotes doubled for CSV.
std::string list_element(const std::string& id) {
  if (parse_canonical_int64(id)) return id;
  if (id.find_first_of(",\"[]") != std::string::npos) {
    throw_error<DataError>(
        "item id '{}' contains a comma, quote or bracket and cannot be written in a list of "
        "processed_seqs.csv",
        id);
  }
  return "\"\"" + id + "\"\"";
}

void write_rows(const Dataset& dataset, const std::filesystem::path& file) {
  const std::unique_ptr<FILE, int (*)(FILE*)> out(std::fopen(file.c_str(), "wb"), std::fclose);
  if (!out) throw_errno("cannot create " + file.string());
  const Manifest& manifest = dataset.manifest();
  const ColumnNames names = column_names(manifest.dataset_name);
  std::string row = "user_id";
  for (const ContextFeature& feature : manifest.context) {
    if (feature.name != "user_id") (row += ',') += csv_field(feature.name);
  }
  row += fmt::format(",{}", names.item);
  if (manifest.action_kind != ActionKind::none) row += fmt::format(",{}", names.action);
  if (manifest.has_timestamps) row += fmt::format(",{}", names.time);
  row += '\n';
  bool written = std::fwrite(row.data(), 1, row.size(), out.get()) == row.size();
  for (int64_t user = 0; user < dataset.num_users() && written; ++user) {
    const UserSequence sequence = dataset.user(user);
    row = csv_field(dataset.user_id(user));
    for (size_t f = 0; f < manifest.context.size(); ++f) {
      if (manifest.context[f].name == "user_id") continue;
      const int64_t value = dataset.context(static_cast<int64_t>(f), user);
      row += ',';
      if (value != 0) row += std::to_string(value);
    }
    const auto add_list = [&](std::span<const int64_t> values, const auto& text) {
      row += ",\"[";
      for (size_t i = 0; i < values.size(); ++i) {
        if (i > 0) row += ", ";
        row += text(values[i]);
      }
      row += "]\"";
    };
    const auto number = [](int64_t value) { return std::to_string(value); };
    add_list(sequence.items, [&](int64_t item) { return list_element(dataset.item_id(item)); });
    if (!sequence.actions.empty()) add_list(sequence.actions, number);
    if (!sequence.timestamps.empty()) add_list(sequence.timestamps, number);
    row += '\n';
    written = std::fwrite(row.data(), 1, row.size(), out.get()) == row.size();
  }
  if (!written || std::fflush(out.get()) != 0) throw_errno("cannot write " + file.string());
}

}  // namespace

void write_processed_seqs(const Dataset& dataset, const std::filesystem::path& file) {
  write_file_atomically(
      file, [&](const std::filesystem::path& temporary) { write_rows(dataset, temporary); });
}

}  // namespace seqfuse::data
