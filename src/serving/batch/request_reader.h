// Reads the users of a batch: all of a data set, or those of a file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "data/dataset/dataset.h"
#include "serving/batch/table_rows.h"
#include "serving/request.h"

namespace seqfuse::serving {

struct UserRequest {
  std::string user;   // an id of the source or, with a history, any name
  Request request;    // for this user of the data set, or for a history
  std::string where;  // "users.csv:5", for messages; "" for users of a data set
  int64_t row = -1;   // the user's row in the data set, if the reader knows it
};

class RequestReader {
 public:
  virtual ~RequestReader() = default;

  // False at the end. Throws UsageError or DataError naming the row.
  virtual bool next(UserRequest& request) = 0;
  // Whether requests bring their histories, judging by the first; then no data set is needed.
  virtual bool gives_histories() const = 0;
  // Whether each row is one event, so that a user who comes again would have a second history.
  virtual bool reads_events() const { return false; }
  virtual std::optional<double> done() const = 0;  // share of the requests, 0 to 1, where known
};

// All users, in the order of their rows. The dataset must outlive the reader.
std::unique_ptr<RequestReader> read_all_users(const data::Dataset& dataset);

struct RequestFileOptions {
  std::string user_column{};            // "": user or user_id, or the only one
  std::string delimiter{};              // as for open_table_rows()
  std::function<void()> interrupted{};  // as for FileStream
};

// A file as docs/recommend.md describes it, or "-". Throws UsageError, DataError or IoError.
std::unique_ptr<RequestReader> open_requests(const std::string& file, TableFormat format,
                                             RequestFileOptions options);

}  // namespace seqfuse::serving
