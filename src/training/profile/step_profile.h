// Where the time of recorded training steps went: from what ran to a table and a JSON file.
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

// A kernel, a copy, or an operator of the CPU.
struct Work {
  std::string name;
  Span span;
  uint64_t thread = 0;
};

// Of each: its time less that of what ran inside it on the same thread. In the order of work.
std::vector<int64_t> self_times(const std::vector<Work>& work);

// Dense TFLOP/s of a card in 16 bits; none for a card that is not known.
std::optional<double> peak_tflops(const std::string& gpu_name);

// Sums over all recorded steps.
struct StepProfile {
  struct Row {
    std::string name;
    int64_t time = 0, count = 0;
  };
  std::string device;
  bool on_gpu = false;
  int64_t first_step = 0, last_step = 0;  // as metrics.jsonl counts them
  int64_t tokens = 0;                     // of all processes
  int64_t time = 0;                       // of the clock
  int64_t busy = 0;                       // of the GPU: something ran
  std::vector<Row> classes;               // of kernels
  std::vector<Row> names;                 // kernels or operators, those that took longest first
  // Of this process alone.
  std::optional<double> layer_flops;    // none where the mask has no closed form
  std::optional<double> peak_tflops;    // of the GPU; none where it is not known
  int64_t allocated = 0, reserved = 0;  // peaks of GPU memory, bytes

  int64_t steps() const { return last_step - first_step + 1; }

  // Fills in busy, classes and names. Kernels on two streams at a time count in full each, but once
  // in busy; of operators the time is their own (self_times).
  void add_up(const std::vector<Work>& work);
};

nlohmann::json to_json(const StepProfile& profile);
std::string format_profile(const StepProfile& profile);

}  // namespace seqfuse::training
