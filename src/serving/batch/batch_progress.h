// How far a batch has come, for people.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace seqfuse::serving {

// All methods may be called from several threads at once.
class BatchProgress {
 public:
  // users: read so far. share: of the input that has been read, 0 to 1, if it is known.
  void read(int64_t users, std::optional<double> share);
  // Adds users that were answered now, or before the batch was interrupted.
  void answered(int64_t users) { answered_ += users; }
  void done_before(int64_t users) { before_ += users; }

  // "12.3 k users, 1.9 k users/s, 40 %, 9.7 s left": users with answers, and the rate of those that
  // were answered now. Share and time left if the number of users is known or can be estimated.
  // seconds: since the start. processes: how many share the work out evenly; this is one of them.
  std::string text(double seconds, int processes) const;

 private:
  std::atomic<int64_t> answered_ = 0, before_ = 0;
  std::atomic<double> expected_ = 0;  // users of the whole input; 0: not known
};

}  // namespace seqfuse::serving
