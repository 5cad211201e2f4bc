#include "models/bert/program.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/trace_range.h"

namespace seqfuse::models::bert {
namespace {

// The last segment that reads what operator `op` computes; -1: none.
int last_reader(std::span<const Segment> segments, int op) {
  int reader = -1;
  for (size_t s = 0; s < segments.size(); ++s) {
    for (int i = index_of(segments[s].first); i <= index_of(segments[s].last); ++i) {
      const auto& reads = kGraph[static_cast<size_t>(i)].reads;
      if (std::find(reads.begin(), reads.end(), op) != reads.end()) reader = static_cast<int>(s);
    }
  }
  return reader;
}

// "gemm0 bias0+split"
std::string names_of(const Segment& segment) {
  std::string names;
  for (int op = index_of(segment.first); op <= index_of(segment.last); ++op) {
    if (!names.empty()) names += ' ';
    names += kGraph[static_cast<size_t>(op)].name;
  }
  return names;
}

}  // namespace

Program::Program(std::vector<Segment> segments) : segments_(std::move(segments)) {
  int next = 0;
  for (size_t s = 0; s < segments_.size(); ++s) {
    const int first = index_of(segments_[s].first), last = index_of(segments_[s].last);
    SEQFUSE_CHECK(first == next && last >= first,
                  "a program of a BERT layer: segment {} is {} to {}; expected one that begins "
                  "with operator {}",
                  s, first, last, next);
    for (int op = first; op < last; ++op) {
      SEQFUSE_CHECK(last_reader(segments_, op) <= static_cast<int>(s),
                    "a program of a BERT layer: {} is inside segment {}, and a later one reads it",
                    kGraph[static_cast<size_t>(op)].name, s);
    }
    next = last + 1;
  }
  SEQFUSE_CHECK(next == kOps, "a program of a BERT layer: it has {} operators; expected {}", next,
                kOps);
  last_reads_.resize(segments_.size());
  for (const Segment& segment : segments_) {
    names_.push_back(names_of(segment));
    const int reader = last_reader(segments_, index_of(segment.last));
    if (reader >= 0) last_reads_[static_cast<size_t>(reader)].push_back(index_of(segment.last));
  }
}

bool Program::needs_dense_mask() const {
  return std::any_of(segments_.begin(), segments_.end(),
                     [](const Segment& segment) { return segment.reads_dense_mask; });
}

at::Tensor Program::run_layer(const Config& config, const LayerWeights& weights, const Rows& rows,
                              const at::Tensor& dense_mask, const at::Tensor& input) const {
  LayerRun run{.config = config,
               .weights = weights,
               .rows = rows,
               .dense_mask = dense_mask,
               .input = input,
               .outputs = {}};
  for (size_t s = 0; s < segments_.size(); ++s) {
    const TraceRange range(names_[s].c_str());
    run.outputs[static_cast<size_t>(segments_[s].last)] = segments_[s].run(run);
    for (const int op : last_reads_[s]) run.outputs[static_cast<size_t>(op)].reset();
  }
  return run.outputs[static_cast<size_t>(Op::layer_norm2)];
}

}  // namespace seqfuse::models::bert
