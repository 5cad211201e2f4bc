#include "serving/batch/request_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"

namespace seqfuse::serving {
namespace {

constexpr int kNone = -1;
constexpr std::string_view kContext = "context.";

class AllUsers final : public RequestReader {
 public:
  explicit AllUsers(const data::Dataset& dataset) : dataset_(dataset) {}

  bool next(UserRequest& request) override {
    if (row_ == dataset_.num_users()) return false;
    request = {.user = dataset_.user_id(row_), .request = {}, .where = "", .row = row_};
    request.request.user = request.user;
    ++row_;
    return true;
  }

  bool gives_histories() const override { return false; }
  std::optional<double> done() const override {
    return static_cast<double>(row_) / static_cast<double>(dataset_.num_users());
  }

 private:
  const data::Dataset& dataset_;
  int64_t row_ = 0;
};

class Lines final : public RequestReader {
 public:
  explicit Lines(std::unique_ptr<TableRows> rows) : rows_(std::move(rows)) {}

  bool next(UserRequest& request) override {
    if (!rows_->next()) return false;
    request = {.user = *rows_->text(0), .request = {}, .where = rows_->where()};
    request.request.user = request.user;
    return true;
  }

  bool gives_histories() const override { return false; }
  std::optional<double> done() const override { return rows_->done(); }

 private:
  std::unique_ptr<TableRows> rows_;
};

class JsonLines final : public RequestReader {
 public:
  JsonLines(std::unique_ptr<TableRows> rows, std::string user_field)
      : rows_(std::move(rows)), user_field_(std::move(user_field)) {
    more_ = read_line();
  }

  bool next(UserRequest& request) override {
    if (!more_) return false;
    request = std::move(next_);
    more_ = read_line();
    return true;
  }

  bool gives_histories() const override { return histories_.value_or(false); }
  std::optional<double> done() const override { return rows_->done(); }

 private:
  bool read_line() {
    next_ = {};
    if (!rows_->next()) return false;
    next_.where = rows_->where();
    try {
      next_.request = request_from_json_line(*rows_->text(0), user_field_);
    } catch (const UsageError& error) {
      throw_error<DataError>("{}: {}", next_.where, error.what());
    }
    next_.user = *next_.request.user;
    if (next_.request.items) next_.request.user.reset();
    histories_ = histories_.value_or(next_.request.items.has_value());
    return true;
  }

  std::unique_ptr<TableRows> rows_;
  std::string user_field_;
  UserRequest next_;  // if there are more
  bool more_ = false;
  std::optional<bool> histories_;  // by the first line
};

// The columns of a table that describe a request.
struct RequestColumns {
  int user = kNone, items = kNone, timestamps = kNone, actions = kNone;
  bool one_event = false;  // in each row; else a whole history
  int candidates = kNone, request_time = kNone;
  std::vector<std::pair<std::string, int>> context;
  std::vector<int> all;

  RequestColumns(const std::vector<std::string>& names, const std::string& user_column,
                 const std::string& file) {
    const auto find = [&](const std::string& name) {
      const auto found = std::find(names.begin(), names.end(), name);
      return found == names.end() ? kNone : static_cast<int>(found - names.begin());
    };
    const auto find_first = [&](const std::vector<std::string>& candidates) {
      for (const std::string& name : candidates) {
        if (find(name) != kNone) return find(name);
      }
      return kNone;
    };
    if (const std::string other = other_delimiter(names); !other.empty()) {
      throw_error<DataError>(
          "{}: its first line, '{}', seems to be separated by {}: give --delimiter (with --format "
          "csv), or separate fields by commas",
          file, names[0], other);
    }
    user = user_column.empty() ? find_first({"user", "user_id"}) : find(user_column);
    if (user == kNone && user_column.empty() && names.size() == 1) user = 0;
    if (user == kNone) {
      throw_error<DataError>(
          "{} has no column '{}'{}: it has {}\n"
          "  --user-column names the column of the users; a file of ids alone is read with "
          "--format lines",
          file, user_column.empty() ? "user" : user_column, did_you_mean(user_column, names),
          fmt::join(names, ", "));
    }
    items = find("items");
    if (items != kNone) {
      timestamps = find("timestamps");
      actions = find("actions");
    } else if (items = find_first({"item", "item_id"}); items != kNone) {
      one_event = true;
      timestamps = find("timestamp");
      actions = find("action");
    }
    candidates = find("candidates");
    request_time = find("request_time");
    all = {user, items, timestamps, actions, candidates, request_time};
    for (size_t column = 0; column < names.size(); ++column) {
      if (!names[column].starts_with(kContext)) continue;
      context.emplace_back(names[column].substr(kContext.size()), static_cast<int>(column));
      all.push_back(static_cast<int>(column));
    }
    std::erase(all, kNone);
    warn_of_unread(names, file);
  }

  void warn_of_unread(const std::vector<std::string>& names, const std::string& file) const {
    std::vector<std::string> unread;
    for (size_t column = 0; column < names.size(); ++column) {
      if (std::find(all.begin(), all.end(), static_cast<int>(column)) == all.end()) {
        unread.push_back(names[column]);
      }
    }
    if (unread.empty()) return;
    log::warning("recommend", "columns of {} that are not read: {}", file, fmt::join(unread, ", "));
  }
};

class Table final : public RequestReader {
 public:
  Table(std::unique_ptr<TableRows> rows, const std::string& user_column, const std::string& file)
      : rows_(std::move(rows)), columns_(rows_->names(), user_column, file) {
    rows_->select(columns_.all);
    more_ = rows_->next();
  }

  bool next(UserRequest& request) override {
    if (!more_) return false;
    request = {.user = user(), .request = {}, .where = rows_->where()};
    read_about_user(request.request);
    if (columns_.items == kNone) {
      request.request.user = request.user;
      more_ = rows_->next();
    } else if (columns_.one_event) {
      read_events(request);
    } else {
      const auto list = [&](int column) {
        return column == kNone ? std::nullopt : rows_->list(column);
      };
      request.request.items = list(columns_.items).value_or(Texts());
      request.request.timestamps = list(columns_.timestamps);
      request.request.actions = list(columns_.actions);
      more_ = rows_->next();
    }
    return true;
  }

  bool gives_histories() const override { return columns_.items != kNone; }
  bool reads_events() const override { return columns_.one_event; }
  std::optional<double> done() const override { return rows_->done(); }

 private:
  std::string user() const {
    auto user = rows_->text(columns_.user);
    if (!user) throw_error<DataError>("{}: the user is blank", rows_->where());
    return std::move(*user);
  }

  void read_about_user(Request& request) const {
    if (columns_.candidates != kNone) {
      request.candidates = rows_->list(columns_.candidates).value_or(Texts());
    }
    if (columns_.request_time != kNone) request.request_time = rows_->text(columns_.request_time);
    for (const auto& [feature, column] : columns_.context) {
      if (const auto value = rows_->text(column)) request.context.emplace_back(feature, *value);
    }
  }

  // Reads the history from consecutive rows of the same user.
  void read_events(UserRequest& request) {
    Request& history = request.request;
    history.items.emplace();
    if (columns_.timestamps != kNone) history.timestamps.emplace();
    if (columns_.actions != kNone) history.actions.emplace();
    do {
      history.items->push_back(rows_->text(columns_.items).value_or(""));
      if (history.timestamps) {
        history.timestamps->push_back(rows_->text(columns_.timestamps).value_or(""));
      }
      if (history.actions) history.actions->push_back(rows_->text(columns_.actions).value_or(""));
      more_ = rows_->next();
    } while (more_ && user() == request.user);
  }

  std::unique_ptr<TableRows> rows_;
  RequestColumns columns_;
  bool more_ = false;  // whether rows_ stands at a row that is not used yet
};

}  // namespace

std::unique_ptr<RequestReader> read_all_users(const data::Dataset& dataset) {
  return std::make_unique<AllUsers>(dataset);
}

std::unique_ptr<RequestReader> open_requests(const std::string& file, TableFormat format,
                                             RequestFileOptions options) {
  const std::string& user_column = options.user_column;
  auto rows = open_table_rows(file, format, options.delimiter, std::move(options.interrupted));
  switch (format) {
    case TableFormat::lines:
      return std::make_unique<Lines>(std::move(rows));
    case TableFormat::jsonl:
      return std::make_unique<JsonLines>(std::move(rows),
                                         user_column.empty() ? "user" : user_column);
    default:
      return std::make_unique<Table>(std::move(rows), user_column,
                                     file == "-" ? "standard input" : file);
  }
}

}  // namespace seqfuse::serving
