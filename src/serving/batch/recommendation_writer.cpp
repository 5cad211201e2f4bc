#include "serving/batch/recommendation_writer.h"

#include <arrow/io/file.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "data/dataset/arrow_files.h"
#include "serving/batch/parquet_writer.h"

namespace seqfuse::serving {
namespace {

using data::arrow_check;
using data::arrow_value;

std::string csv_field(std::string text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::string json_string(const std::string& text) {
  for (const char c : text) {
    if (c < ' ' || c > '~' || c == '"' || c == '\\') {
      // Ids and titles may hold bytes that are not UTF-8.
      return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
  }
  return '"' + text + '"';
}

void append_number(double value, std::string& text) {
  char digits[32];  // the shortest that read the same value
  const char* end = fmt::format_to(&digits[0], "{}", value);
  text.append(digits, end - digits);
}

// JSON has no numbers that are not finite.
void append_json_number(double value, std::string& text) {
  if (std::isfinite(value)) {
    append_number(value, text);
  } else {
    text += "null";
  }
}

// Rows of text. Users are formatted in parallel, then written in order.
class TextWriter : public RecommendationWriter {
 public:
  TextWriter(const std::filesystem::path& file, OutputTable table)
      : table_(std::move(table)),
        name_(file.string()),
        file_(arrow_value<IoError>(arrow::io::FileOutputStream::Open(name_), name_)),
        items_(table_.vocabulary.num_items() < kMostKept ? table_.vocabulary.num_items() + 1 : 0) {}

  void add(std::span<const UserItems> users) override {
    for (const UserItems& user : users) {
      for (const int64_t item : user.items) {
        if (!items_.empty() && items_[item].id.empty()) items_[item] = item_fields(item);
      }
    }
    constexpr int64_t kUsers = 64;  // a task
    const int64_t count = std::ssize(users);
    std::vector<std::string> texts((count + kUsers - 1) / kUsers);
    parallel_tasks(std::ssize(texts), [&](int64_t task) {
      const int64_t begin = task * kUsers;
      for (const UserItems& user : users.subspan(begin, std::min(kUsers, count - begin))) {
        append_rows(user, texts[task]);
      }
    });
    for (const std::string& text : texts) write(text);
  }

  void close() override { arrow_check<IoError>(file_->Close(), name_); }

 protected:
  // The part of a row that depends on the item alone, in this format.
  struct ItemFields {
    std::string id, title;
  };

  virtual void append_rows(const UserItems& user, std::string& text) const = 0;
  virtual ItemFields item_fields(int64_t item) const = 0;

  // Calls use() with the fields of an item.
  template <class Use>
  void with_item(int64_t item, const Use& use) const {
    if (items_.empty()) {
      use(item_fields(item));
    } else {
      use(items_[item]);
    }
  }

  void write(const std::string& text) {
    arrow_check<IoError>(file_->Write(text.data(), std::ssize(text)), name_);
  }

  const OutputTable table_;

 private:
  static constexpr int64_t kMostKept = int64_t{1} << 20;  // items, which bounds the memory

  std::string name_;
  std::shared_ptr<arrow::io::FileOutputStream> file_;
  std::vector<ItemFields> items_;  // of those recommended so far; empty: a catalogue too large
};

class CsvWriter final : public TextWriter {
 public:
  CsvWriter(const std::filesystem::path& file, OutputTable table)
      : TextWriter(file, std::move(table)) {
    std::string header = "user,rank,item";
    for (const std::string& name : table_.score_names) header += ',' + csv_field(name);
    write(header + ",title\n");
  }

 private:
  void append_rows(const UserItems& user, std::string& text) const override {
    const std::string id = csv_field(user.user) + ',';
    const size_t width = table_.score_names.size();
    for (size_t i = 0; i < user.items.size(); ++i) {
      text += id;
      text += fmt::format_int(i + 1).c_str();
      with_item(user.items[i], [&](const ItemFields& item) {
        text += item.id;
        for (size_t s = 0; s < width; ++s) {
          text += ',';
          if (!user.scores.empty()) append_number(user.scores[i * width + s], text);
        }
        text += item.title;
      });
    }
  }

  ItemFields item_fields(int64_t item) const override {
    return {.id = ',' + csv_field(table_.vocabulary.item_id(item)),
            .title = ',' + csv_field(table_.vocabulary.item_title(item)) + '\n'};
  }
};

class JsonLinesWriter final : public TextWriter {
 public:
  JsonLinesWriter(const std::filesystem::path& file, OutputTable table)
      : TextWriter(file, std::move(table)) {
    for (const std::string& name : table_.score_names) {
      keys_.push_back(fmt::format(", {}: ", json_string(name)));
    }
  }

 private:
  void append_rows(const UserItems& user, std::string& text) const override {
    const std::string start = R"({"user": )" + json_string(user.user) + R"(, "rank": )";
    const size_t width = keys_.size();
    for (size_t i = 0; i < user.items.size(); ++i) {
      text += start;
      text += fmt::format_int(i + 1).c_str();
      with_item(user.items[i], [&](const ItemFields& item) {
        text += item.id;
        for (size_t s = 0; s < width && !user.scores.empty(); ++s) {
          text += keys_[s];
          append_json_number(user.scores[i * width + s], text);
        }
        text += item.title;
      });
    }
  }

  ItemFields item_fields(int64_t item) const override {
    const std::string title = table_.vocabulary.item_title(item);
    return {.id = R"(, "item": )" + json_string(table_.vocabulary.item_id(item)),
            .title = title.empty() ? "}\n" : R"(, "title": )" + json_string(title) + "}\n"};
  }

  std::vector<std::string> keys_;  // such as `, "score": `
};

}  // namespace

OutputFormat output_format(const std::string& file) {
  const std::string ending = std::filesystem::path(file).extension().string();
  if (ending == ".csv") return OutputFormat::csv;
  if (ending == ".jsonl" || ending == ".ndjson") return OutputFormat::jsonl;
  if (ending == ".parquet") return OutputFormat::parquet;
  throw_error<UsageError>(
      "--output is {}: end its name in .csv, .jsonl or .parquet, which tells the format", file);
}

std::unique_ptr<RecommendationWriter> make_writer(const std::filesystem::path& file,
                                                  const OutputTable& table) {
  switch (table.format) {
    case OutputFormat::csv:
      return std::make_unique<CsvWriter>(file, table);
    case OutputFormat::jsonl:
      return std::make_unique<JsonLinesWriter>(file, table);
    case OutputFormat::parquet:
      break;
  }
  return make_parquet_writer(file, table);
}

}  // namespace seqfuse::serving
