// torch.classes.seqfuse.Watch: follows work of another thread, and ends it.
#pragma once

#include <torch/custom_class.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <tuple>
#include <unordered_set>
#include <vector>

namespace seqfuse::api {

// A thread works (put, ended, stopped); another one follows it (take) and may end the work after the
// current step: of one text, or all of it. Safe from any thread.
class Watch : public torch::CustomClassHolder {
 public:
  // For the worker thread.
  void put(int64_t text, int64_t id);  // a new token
  bool ended(int64_t text) const;
  bool stopped() const;

  // Tokens since the last call, in order: (texts, ids), of the same length. Waits for the first, but
  // not after stop(), and no longer than so many seconds.
  std::tuple<std::vector<int64_t>, std::vector<int64_t>> take(double seconds);
  void end_text(int64_t text);
  void stop();

 private:
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::vector<int64_t> texts_, ids_;
  std::unordered_set<int64_t> ended_;
  bool stopped_ = false;
};

}  // namespace seqfuse::api
