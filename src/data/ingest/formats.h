// Layout of the known datasets: file names, columns, context features, labels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/ingest/event_rows.h"
#include "data/read/csv.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {

struct TableFormat {
  // The dialect for a file of this name.
  CsvDialect dialect_of(std::string_view file) const;

  CsvDialect dialect;
  std::vector<std::string> columns;    // empty: the first row names them
  Encoding encoding = Encoding::utf8;  // other encodings are converted to UTF-8
  bool tabs_by_ending = false;         // .tsv files use tabs instead of the dialect's delimiter
  bool typed_header = false;           // its names have types: "user_id:token"
};

// Base names "PREFIX...INFIX...SUFFIX".
struct NamePattern {
  std::string prefix, infix, suffix;
  bool matches(std::string_view base_name) const;
  std::string text() const;
  bool empty() const { return prefix.empty() && infix.empty() && suffix.empty(); }
};

struct ContextSource {
  std::string name;    // of the feature
  std::string column;  // of the user table, or of the log if there is no user table
};

struct UserTable {
  NamePattern file;
  TableFormat table;
  std::string id_column;
};

struct TitleTable {
  NamePattern file;
  TableFormat table;
  std::string id_column, title_column;
  bool if_present = false;  // the input may lack the file
};

struct DatasetFormat {
  std::string name;
  NamePattern log;
  TableFormat table;                                  // of the log
  std::string user_column, item_column, time_column;  // time may be ""
  bool time_if_present = false;                       // time_column may be missing
  int64_t time_units_per_second = 0;                  // of numbers in time_column; 0: not known
  std::vector<std::string> action_columns;
  ActionRule action_rule = ActionRule::none;
  bool user_id_feature = false;        // the user itself is the first context feature
  std::vector<ContextSource> context;  // in order
  std::optional<UserTable> users;
  std::optional<TitleTable> titles;
  bool joins_logs = false;  // the published rule drops users that are missing from any file
  // The layout comes from command-line flags: every input file is a log, unless `log` is a pattern;
  // empty parts are skipped (Spark writes them), and named files of users and titles must exist.
  bool from_flags = false;
};

// ml-100k, ml-latest-small, ml-1m, ml-20m, kuairand-pure, kuairand-1k, kuairand-27k.
const std::vector<DatasetFormat>& known_formats();

// Of columns given by name, the layouts of other tools. given_delimiter: the table's delimiter stays.
// Lines "user item item ..." (SASRec, S3Rec), separated by any white space.
DatasetFormat item_lines_format(DatasetFormat columns, bool given_delimiter);
// RecBole's atomic files NAME.inter, NAME.user and NAME.item, whose headers have types. titles: their
// column in the .item file, "": none; titles_if_present: that file may be missing.
DatasetFormat atomic_files_format(DatasetFormat columns, bool given_delimiter,
                                  const std::string& titles, bool titles_if_present);

// Throws UsageError with the nearest name.
const DatasetFormat& find_format(const std::string& name);

}  // namespace seqfuse::data
