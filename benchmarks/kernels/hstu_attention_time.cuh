// Timings of the attention kernels: causal, mostly with 4 heads and 32 sequences of one length.
#pragma once

#include <chrono>
#include <thread>

#include "benchmarks/kernels/hstu_attention_problem.cuh"

namespace seqfuse::bench {

// The card's state before a timing. Long sequences reach its power limit within tenths of a second,
// depending on earlier work, and its clock then falls by up to 14 %.
enum class Before {
  kRest,  // nothing, for a second
  kLoad,  // the same work, for two seconds
};

// Median milliseconds per launch, from replays of a graph of many launches, so that the graph's own
// launch overhead of some microseconds does not matter.
template <class Launch>
double median_ms(Before before, Launch&& launch) {
  constexpr int kReplays = 11;
  constexpr double kReplayMs = 6;
  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "stream");
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  const auto ms_of = [&](auto&& work) {
    must(cudaEventRecord(begin, stream), "event");
    work();
    must(cudaEventRecord(end, stream), "event");
    must(cudaEventSynchronize(end), "work");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "event");
    return static_cast<double>(ms);
  };
  launch(stream);
  const double one = ms_of([&] { launch(stream); });
  const int launches = std::clamp(static_cast<int>(kReplayMs / one), 3, 100);
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int n = 0; n < launches; ++n) launch(stream);
  must(cudaStreamEndCapture(stream, &graph), "capture");
  must(cudaGraphInstantiate(&replay, graph, 0), "graph");
  const auto replay_ms = [&] {
    return ms_of([&] { must(cudaGraphLaunch(replay, stream), "replay"); }) / launches;
  };
  if (before == Before::kRest) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  } else {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::seconds(2)) replay_ms();
  }
  std::vector<double> times;
  for (int n = 0; n < kReplays; ++n) times.push_back(replay_ms());
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// TFLOP/s, forward and backward, of FlashAttention-2's kernels on an H100; for jagged batches, of
// the fastest wgmma kernel.
struct Cell {
  int head_dim, length, batch, heads;
  double forward, backward;
  bool biases;
  int shortest = 0;  // lengths are spread evenly from this to `length`; 0: all are `length`
};

inline const std::vector<Cell>& cells() {
  static const std::vector<Cell> all = {
      {32, 1024, 32, 4, 0, 0, false},      {32, 4096, 32, 4, 0, 0, false},
      {64, 128, 32, 4, 0, 0, false},       {64, 256, 32, 4, 0, 0, false},
      {128, 128, 32, 4, 0, 0, false},      {128, 256, 32, 4, 0, 0, false},
      {256, 128, 32, 4, 0, 0, false},      {256, 256, 32, 4, 0, 0, false},
      {64, 512, 32, 4, 63, 45, false},     {64, 1024, 32, 4, 178, 133, false},
      {64, 2048, 32, 4, 242, 187, false},  {64, 4096, 32, 4, 284, 228, false},
      {128, 512, 32, 4, 138, 93, false},   {128, 1024, 32, 4, 215, 151, false},
      {128, 2048, 32, 4, 284, 211, false}, {128, 4096, 32, 4, 326, 259, false},
      {256, 512, 32, 4, 156, 91, false},   {256, 1024, 32, 4, 246, 145, false},
      {256, 2048, 32, 4, 294, 193, false}, {256, 4096, 32, 4, 291, 230, false},
      {50, 211, 128, 1, 0, 0, true},       {64, 1024, 32, 4, 0, 0, true},
      {128, 1024, 32, 4, 0, 0, true},      {256, 1024, 32, 4, 0, 0, true},
      {64, 4096, 8, 4, 0, 0, true},        {128, 2048, 64, 4, 380, 261, false, 512}};
  return all;
}

inline Options options_of(const Cell& c) {
  Options o;
  const int first = c.shortest > 0 ? c.shortest : c.length;
  for (int b = 0; b < c.batch; ++b)
    o.keys.push_back(first + (c.length - first) * b / std::max(c.batch - 1, 1));
  o.queries = o.keys;
  o.heads = c.heads;
  o.head_dim = c.head_dim;
  o.position = o.time = c.biases;
  return o;
}

inline void time_cell(const Cell& c, Before before, bool forward, bool backward) {
  const auto line = [&](const char* what, double ms, double flops, double goal) {
    const double speed = flops / ms * 1e-9;
    const char* kind = c.biases ? "biases" : c.shortest > 0 ? "jagged" : "";
    std::printf("%4d %6d %5d %3d  %-24s%-8s %9.4f %9.1f %9.1f %7.2f\n", c.head_dim, c.length,
                c.batch, c.heads, what, kind, ms, speed, 1.15 * goal,
                goal > 0 ? speed / (1.15 * goal) : 0.0);
    std::fflush(stdout);
  };
  Options o = options_of(c);
  double flops = 0;
  for (const int keys : o.keys) flops += 2.0 * c.heads * keys * keys * c.head_dim;
  {
    const Problem p(o);
    if (forward)
      line("forward", median_ms(before, [&](cudaStream_t stream) { p.forward(stream); }), flops,
           c.forward);
    if (backward)
      line("backward", median_ms(before, [&](cudaStream_t stream) { p.backward(stream); }),
           2.5 * flops, c.backward);
  }
  if (!backward) return;
  o.deterministic = true;
  const Problem p(o);
  line("backward, deterministic",
       median_ms(before, [&](cudaStream_t stream) { p.backward(stream); }), 2.5 * flops, 0);
}

inline void time_all(Before before, bool forward, bool backward) {
  std::printf("%4s %6s %5s %3s  %-32s %9s %9s %9s %7s\n", "d", "N", "batch", "H", "what", "ms",
              "TFLOP/s", "goal", "ratio");
  for (const Cell& c : cells()) time_cell(c, before, forward, backward);
}

// Launches each pass once, for a profiler.
inline void run_cell(const Cell& c, bool forward, bool backward) {
  const Problem p(options_of(c));
  if (forward) p.forward();
  if (backward) p.backward();
  must(cudaDeviceSynchronize(), "cell");
}

}  // namespace seqfuse::bench
