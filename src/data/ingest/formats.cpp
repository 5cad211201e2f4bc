#include "data/ingest/formats.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/names.h"
#include "data/ingest/row_reader.h"
#include "data/read/member_names.h"

namespace seqfuse::data {
namespace {

const CsvDialect kDoubleColon = {"::", false};
const CsvDialect kTab = {"\t", false};
const CsvDialect kPipe = {"|", false};

// The older MovieLens datasets: no header line, whole stars.
DatasetFormat movielens_without_header(const char* name, const char* log,
                                       const CsvDialect& dialect) {
  DatasetFormat format;
  format.name = name;
  format.log = {log, "", ""};
  format.table = {dialect, {"user_id", "movie_id", "rating", "unix_timestamp"}};
  format.user_column = "user_id";
  format.item_column = "movie_id";
  format.time_column = "unix_timestamp";
  format.time_units_per_second = 1;
  format.action_columns = {"rating"};
  format.action_rule = ActionRule::whole_stars;
  format.user_id_feature = true;
  return format;
}

DatasetFormat ml_100k() {
  DatasetFormat format = movielens_without_header("ml-100k", "u.data", kTab);
  format.context = {
      {"sex", "sex"}, {"age", "age"}, {"occupation", "occupation"}, {"zip_code", "zip_code"}};
  format.users = {
      {"u.user", "", ""}, {kPipe, {"user_id", "age", "sex", "occupation", "zip_code"}}, "user_id"};
  std::vector<std::string> item_columns = {"movie_id", "title", "release_date",
                                           "video_release_date", "url"};
  for (int genre = 0; genre < 19; ++genre) item_columns.push_back("genre_" + std::to_string(genre));
  format.titles = {
      {"u.item", "", ""}, {kPipe, item_columns, Encoding::utf8_or_latin1}, "movie_id", "title"};
  return format;
}

DatasetFormat ml_1m() {
  DatasetFormat format = movielens_without_header("ml-1m", "ratings.dat", kDoubleColon);
  format.context = {{"sex", "sex"},
                    {"age_group", "age_group"},
                    {"occupation", "occupation"},
                    {"zip_code", "zip_code"}};
  format.users = {{"users.dat", "", ""},
                  {kDoubleColon, {"user_id", "sex", "age_group", "occupation", "zip_code"}},
                  "user_id"};
  format.titles = {{"movies.dat", "", ""},
                   {kDoubleColon, {"movie_id", "title", "genres"}, Encoding::utf8_or_latin1},
                   "movie_id",
                   "title"};
  return format;
}

DatasetFormat movielens_csv(const char* name) {
  DatasetFormat format;
  format.name = name;
  format.log = {"ratings.csv", "", ""};
  format.user_column = "userId";
  format.item_column = "movieId";
  format.time_column = "timestamp";
  format.time_units_per_second = 1;
  format.action_columns = {"rating"};
  format.action_rule = ActionRule::half_stars;
  format.user_id_feature = true;
  format.titles = {{"movies.csv", "", ""}, TableFormat(), "movieId", "title"};
  return format;
}

DatasetFormat kuairand(const std::string& variant) {
  DatasetFormat format;
  format.name = "kuairand-" + variant;
  format.log = {"log_standard_", "_" + variant, ".csv"};
  format.user_column = "user_id";
  format.item_column = "video_id";
  format.time_column = "time_ms";
  format.time_units_per_second = 1000;
  format.action_columns = {"is_click",   "is_like", "is_follow", "is_comment",
                           "is_forward", "is_hate", "long_view", "is_profile_enter"};
  format.action_rule = ActionRule::bits;
  format.user_id_feature = true;
  for (const char* feature : {"user_active_degree", "follow_user_num_range", "fans_user_num_range",
                              "friend_user_num_range", "register_days_range"}) {
    format.context.push_back({feature, feature});
  }
  format.users = {{"user_features_", variant, ".csv"}, TableFormat(), "user_id"};
  format.titles = {
      {"kuairand_video_captions", "", ".csv"}, TableFormat(), "final_video_id", "caption"};
  format.joins_logs = true;
  return format;
}

}  // namespace

CsvDialect TableFormat::dialect_of(std::string_view file) const {
  CsvDialect result = dialect;
  if (tabs_by_ending && kind_of(file) == FileKind::tabs) result.delimiter = "\t";
  return result;
}

bool NamePattern::matches(std::string_view base_name) const {
  if (infix.empty() && suffix.empty()) return base_name == prefix;
  return base_name.starts_with(prefix) && base_name.ends_with(suffix) &&
         base_name.find(infix, prefix.size()) != std::string_view::npos;
}

std::string NamePattern::text() const {
  if (infix.empty() && suffix.empty()) return prefix;
  return prefix + (infix.empty() ? "*" : "*" + infix + "*") + suffix;
}

const std::vector<DatasetFormat>& known_formats() {
  static const std::vector<DatasetFormat> formats = {
      ml_100k(),        movielens_csv("ml-latest-small"),
      ml_1m(),          movielens_csv("ml-20m"),
      kuairand("pure"), kuairand("1k"),
      kuairand("27k")};
  return formats;
}

DatasetFormat item_lines_format(DatasetFormat columns, bool given_delimiter) {
  TableFormat& table = columns.table;
  table.columns = {columns.user_column, columns.item_column};
  table.tabs_by_ending = false;
  table.dialect.quotes = false;
  if (!given_delimiter) table.dialect.delimiter = kAnySpace;
  return columns;
}

DatasetFormat atomic_files_format(DatasetFormat columns, bool given_delimiter,
                                  const std::string& titles, bool titles_if_present) {
  TableFormat& table = columns.table;
  table.tabs_by_ending = false;
  table.typed_header = true;
  table.dialect.quotes = false;
  if (!given_delimiter) table.dialect.delimiter = "\t";
  columns.log = {"", "", ".inter"};
  if (!columns.context.empty()) columns.users = {{"", "", ".user"}, table, columns.user_column};
  if (!titles.empty()) {
    columns.titles = {{"", "", ".item"}, table, columns.item_column, titles, titles_if_present};
  }
  return columns;
}

const DatasetFormat& find_format(const std::string& name) {
  std::vector<std::string> names;
  for (const DatasetFormat& format : known_formats()) {
    if (format.name == name) return format;
    names.push_back(format.name);
  }
  names.emplace_back("csv");
  throw_error<UsageError>("unknown --dataset-name '{}'{}; known: {}", name,
                          did_you_mean(name, names), fmt::join(names, ", "));
}

}  // namespace seqfuse::data
