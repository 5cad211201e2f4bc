// The profile of recorded training steps, as a table and a JSON file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace seqfuse::training {

// Times are in nanoseconds.
struct Span {
  int64_t begin = 0, end = 0;
};

// Length of the union.
int64_t covered(std::vector<Span> spans);

// A kernel, a copy, or a CPU operator.
struct Work {
  std::string name;
  Span span;
  uint64_t thread = 0;
};

// Each item's self time: its time without that of work nested in it on the same thread.
std::vector<int64_t> self_times(const std::vector<Work>& work);

// Dense 16-bit TFLOP/s of a card; none for an unknown card.
std::optional<double> peak_tflops(const std::string& gpu_name);

// Sums over all recorded steps.
struct StepProfile {
  struct Row {
    std::string name;
    int64_t time = 0, count = 0;
  };
  std::string device;
  bool on_gpu = false;
  int64_t first_step = 0, last_step = 0;  // numbered as in metrics.jsonl
  int64_t tokens = 0;                     // of all processes
  int64_t time = 0;                       // wall time
  int64_t busy = 0;                       // time with any work on the GPU
  std::vector<Row> classes;               // of kernels
  std::vector<Row> names;                 // kernels or operators, slowest first
  // For this process only:
  std::optional<double> layer_flops;    // none if the mask has no closed form
  std::optional<double> peak_tflops;    // of the GPU; none if unknown
  int64_t allocated = 0, reserved = 0;  // peaks of GPU memory, bytes

  int64_t steps() const { return last_step - first_step + 1; }

  // Fills in busy, classes and names. Concurrent kernels each count in full, but only once in busy.
  // Operators count with their self time.
  void add_up(const std::vector<Work>& work);
};

nlohmann::json to_json(const StepProfile& profile);
std::string format_profile(const StepProfile& profile);

}  // namespace seqfuse::training
