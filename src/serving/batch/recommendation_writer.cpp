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

// JSON has no numbers that are not finite.
std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

// Rows of text. Users are formatted in parallel, then written in order.
class TextWriter : public RecommendationWriter {
 public:
  TextWriter(const std::filesystem::path& file, OutputTable table)
      : table_(std::move(table)),
        name_(file.string()),
        file_(arrow_value<IoError>(arrow::io::FileOutputStream::Open(name_), name_)) {}

  void add(std::span<const UserItems> users) override {
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
  virtual void append_rows(const UserItems& user, std::string& text) const = 0;

  void write(const std::string& text) {
    arrow_check<IoError>(file_->Write(text.data(), std::ssize(text)), name_);
  }

  const OutputTable table_;

 private:
  std::string name_;
  std::shared_ptr<arrow::io::FileOutputStream> file_;
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
    const std::string id = csv_field(user.user);
    const size_t width = table_.score_names.size();
    for (size_t i = 0; i < user.items.size(); ++i) {
      fmt::format_to(std::back_inserter(text), "{},{},{}", id, i + 1,
                     csv_field(table_.vocabulary.item_id(user.items[i])));
      for (size_t s = 0; s < width; ++s) {
        text += ',';
        if (!user.scores.empty()) {
          fmt::format_to(std::back_inserter(text), "{}", user.scores[i * width + s]);
        }
      }
      text += ',' + csv_field(table_.vocabulary.item_title(user.items[i])) + '\n';
    }
  }
};

class JsonLinesWriter final : public TextWriter {
 public:
  JsonLinesWriter(const std::filesystem::path& file, OutputTable table)
      : TextWriter(file, std::move(table)) {
    for (const std::string& name : table_.score_names) keys_.push_back(json_string(name));
  }

 private:
  void append_rows(const UserItems& user, std::string& text) const override {
    const std::string id = json_string(user.user);
    const size_t width = keys_.size();
    for (size_t i = 0; i < user.items.size(); ++i) {
      fmt::format_to(std::back_inserter(text), R"({{"user": {}, "rank": {}, "item": {})", id, i + 1,
                     json_string(table_.vocabulary.item_id(user.items[i])));
      for (size_t s = 0; s < width && !user.scores.empty(); ++s) {
        fmt::format_to(std::back_inserter(text), ", {}: {}", keys_[s],
                       json_number(user.scores[i * width + s]));
      }
      const std::string title = table_.vocabulary.item_title(user.items[i]);
      if (!title.empty()) text += ", \"title\": " + json_string(title);
      text += "}\n";
    }
  }

  std::vector<std::string> keys_;
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
