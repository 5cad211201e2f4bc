// Whom a batch recommends for: the users of a data set, or the rows of a file.
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
  std::string user;   // who the rows of the answer are for: an id of the source, or any name
  Request request;    // of this user of the data set, or of a history
  std::string where;  // it was read, for messages; "" of a data set
  int64_t row = -1;   // of this user in the data set, if the reader knows it
};

class RequestReader {
 public:
  virtual ~RequestReader() = default;

  // False at the end. Throws UsageError or DataError naming the row.
  virtual bool next(UserRequest& request) = 0;
  // Whether (the first of) the requests bring their histories, so that the data set has not to.
  virtual bool gives_histories() const = 0;
  // Whether a user who comes again goes on with an interrupted history.
  virtual bool reads_events() const { return false; }
  virtual std::optional<double> done() const = 0;  // share of the requests, 0 to 1, where known
};

// All users, in the order of their rows. The dataset must outlive the reader.
std::unique_ptr<RequestReader> read_all_users(const data::Dataset& dataset);

// A file as docs/recommend.md describes it, or "-". user_column: the column of users; "": user or
// user_id, or the only one. Throws UsageError, DataError or IoError.
std::unique_ptr<RequestReader> open_requests(const std::string& file, TableFormat format,
                                             const std::string& user_column,
                                             std::function<void()> interrupted = {});

}  // namespace seqfuse::serving
