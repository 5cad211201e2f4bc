// Names on the timeline of NVIDIA's profilers: what this thread does, and the kernels that it enqueues
// meanwhile (docs/profiling.md).
#pragma once

namespace seqfuse {

// From its construction to its destruction, inside other ranges of this thread. Without a profiler, a test
// of a pointer; in a build without CUDA, nothing.
class TraceRange {
 public:
  // name: copied by the profiler.
  explicit TraceRange(const char* name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace seqfuse
