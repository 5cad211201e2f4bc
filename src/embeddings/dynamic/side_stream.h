// A second stream of a GPU, on which a table is read or filled while the current stream computes.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <functional>
#include <optional>

namespace seqfuse::embeddings {

// On the CPU everything runs at once, in the order of the calls.
//
//   join();  work on the table  mark();      other work      join();  work on the table
//                               run(aside) = beside the other work
//
// The host never waits. Not thread-safe.
class SideStream {
 public:
  explicit SideStream(at::Device device) : device_(device) {}
  // The current stream goes on after what ran aside, which may use memory that is freed next.
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Call before work on the table: the current stream goes on after what was run aside.
  void join();
  // After it: what is run aside begins when the current stream has come to this point. Without a call
  // since the last join(), it begins when the current stream has done all it had when run() was called.
  void mark();
  // Calls work() with the other stream as the current one.
  void run(const std::function<void()>& work);

  // Within work(): a tensor of the other stream that is read there; its memory is not given to others before.
  void keep(const at::Tensor& tensor) const;

 private:
  c10::Stream current() const;

  at::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> marked_, done_;
  bool is_marked_ = false, is_running_ = false;
};

}  // namespace seqfuse::embeddings
