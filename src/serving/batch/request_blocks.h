// Groups requests into blocks, fills in defaults and leaves out users who come again.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "serving/batch/request_reader.h"

namespace seqfuse::serving {

struct BlockOptions {
  Request defaults;  // candidates and request_time of users who bring none; time_format of all
  int64_t most_users = 4096;     // in a block
  int64_t most_history = 0;      // the most events that the model reads of a user
  int64_t top_k = 10;            // items of an answer
  bool users_are_known = false;  // each comes once, as those of a data set do
};

class RequestBlocks {
 public:
  // The reader must outlive this object.
  RequestBlocks(RequestReader& reader, BlockOptions options);

  // Empty at the end. The same blocks for the same requests and options. Throws what the reader
  // throws, and DataError if a history goes on after other users.
  const std::vector<UserRequest>& next();

  int64_t users() const { return users_; }            // in all blocks so far
  int64_t duplicates() const { return duplicates_; }  // users who came again and were left out
  const std::string& first_duplicate() const { return first_duplicate_; }

 private:
  // The users read so far, as 128-bit hashes.
  class Seen {
   public:
    // False if the user has been added before.
    bool add(const std::string& user);

   private:
    using Key = std::pair<uint64_t, uint64_t>;
    struct First {
      size_t operator()(const Key& key) const { return key.first; }
    };
    std::unordered_set<Key, First> users_;
  };

  bool is_new(const UserRequest& request);

  RequestReader& reader_;
  const BlockOptions options_;
  Seen seen_;
  std::vector<UserRequest> block_;
  int64_t users_ = 0, duplicates_ = 0;
  std::string first_duplicate_;
};

// A hash of everything in these requests that answers depend on, except time_format.
std::string hash_of(const std::vector<UserRequest>& requests);

}  // namespace seqfuse::serving
