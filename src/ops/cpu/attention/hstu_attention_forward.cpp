#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "ops/cpu/attention/hstu_attention_bias.h"
#include "ops/cpu/attention/hstu_attention_gemm.h"
#include "ops/cpu/attention/hstu_attention_pack.h"
#include "ops/cpu/attention/hstu_attention_tiles.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/simd_math.h"
#include "ops/kernels/attention/hstu_attention.h"

namespace seqfuse::ops {
namespace cpu {
namespace {

// Queries per task; they share the key blocks that the task packs.
constexpr int64_t kQueryBlock = 256;

// Queries [first, last) of one sequence and head.
struct Task {
  int64_t sequence, head, first, last;
  int64_t cost;
};

// All tasks, longest first.
void list_tasks(const HstuAttentionParams& p, std::vector<Task>& tasks) {
  tasks.clear();
  for (int64_t b = 0; b < p.batch; ++b) {
    const SequenceShape shape(p, b);
    for (int64_t last = shape.queries; last > 0; last -= kQueryBlock) {
      const int64_t first = std::max<int64_t>(0, last - kQueryBlock);
      const int64_t seen = p.mask.causal && !p.num_contexts ? shape.shift() + last : shape.keys;
      for (int64_t h = 0; h < p.heads; ++h) {
        tasks.push_back({b, h, first, last, (last - first) * seen});
      }
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Task& a, const Task& b) { return a.cost > b.cost; });
}

// Turns the scores of a segment, in place, into the weights silu(s) M.
template <int kVecs, class T>
void weigh(T* scores, const Strip<T>& strip, const Segment& segment, const RelativeBias<T>& bias) {
  constexpr int kWidth = kVecs * kLanes<T>;
  const int64_t i = strip.first() + segment.vec * kLanes<T>;
  for (int64_t j = segment.keys.lo; j < segment.keys.hi; ++j, scores += kWidth) {
    if (bias.by_position()) bias.template add_by_position<kWidth>(scores, i, j);
    if (bias.by_time()) {
      int32_t buckets[kWidth];
      bias.template buckets<kWidth>(buckets, i, j);
      bias.template add_by_time<kWidth>(scores, buckets);
    }
    for (int l = 0; l < kWidth; l += kLanes<T>) store(scores + l, silu(load(scores + l)));
    if (!strip.sees_fully(segment, j)) strip.template mask<kWidth>(scores, segment.vec, j);
  }
}

template <class T>
void run_task(const HstuAttentionParams& p, const Task& task) {
  constexpr int kW = kLanes<T>, kWidth = Strip<T>::kWidth;
  constexpr int64_t kKeyLd =
      kKeyBlock + kW;  // not a power of two, so that rows spread over cache sets
  const int64_t d = p.head_dim, d_ld = (d + kW - 1) / kW * kW;
  const SequenceShape shape(p, task.sequence);
  const T* q = rows_of<const T>(p.q, shape.q_begin, task.head);
  const T* k = rows_of<const T>(p.k, shape.k_begin, task.head);
  const T* v = rows_of<const T>(p.v, shape.k_begin, task.head);
  T* out = rows_of<T>(p.out, shape.q_begin, task.head);

  Scratch& scratch = Scratch::fresh();
  const int64_t strips = strip_count<T>(task.last - task.first), strip_size = d * kWidth;
  Strip<T>* strip = scratch.take<Strip<T>>(strips);
  T* q_columns = scratch.take<T>(strips * strip_size);  // [strip][d][lane], scaled by alpha
  T* sums = scratch.take<T>(strips * strip_size);       // [strip][d][lane]
  T* k_columns = scratch.take<T>(d * kKeyLd);           // [d][key]
  T* v_rows = scratch.take<T>(kKeyBlock * d_ld);        // [key][d]
  T* scores = scratch.take<T>(kKeyBlock * kWidth);      // [key][lane]
  const RelativeBias<T> bias(p, task.sequence, shape.keys, scratch);
  const SequenceMask mask(p, task.sequence, shape.keys);

  std::fill_n(sums, strips * strip_size, T(0));
  KeyRange seen;
  for (int64_t s = 0; s < strips; ++s) {
    const int64_t first = task.last - (strips - s) * kWidth;
    new (&strip[s]) Strip<T>(mask, shape.shift() + first, shape.shift() + task.first);
    seen = seen.hull(strip[s].keys());
    for (int vec = 0; vec < 2; ++vec) {
      pack_transposed(q_columns + s * strip_size + vec * kW, kWidth, q, p.q.row_stride,
                      first + vec * kW, shape.queries, d, static_cast<T>(p.alpha));
    }
  }
  for (int64_t begin = seen.lo; begin < seen.hi; begin += kKeyBlock) {
    const KeyRange block{begin, std::min(begin + kKeyBlock, seen.hi)};
    const int64_t keys = block.hi - block.lo;
    for (int64_t j = 0; j < keys; j += kW) {
      pack_transposed(k_columns + j, kKeyLd, k, p.k.row_stride, begin + j, shape.keys, d, T(1));
    }
    pack_rows(v_rows, d_ld, v + begin * p.v.row_stride, p.v.row_stride, keys, d, T(1));
    for (int64_t s = 0; s < strips; ++s) {
      for (const Segment& segment : strip[s].segments(block)) {
        const int64_t offset = s * strip_size + segment.vec * kW, j = segment.keys.lo - begin;
        const int64_t rows = segment.keys.hi - segment.keys.lo;
        const auto attend = [&]<int kVecs>() {
          multiply<kVecs, 1, false>(scores, kVecs * kW, k_columns + j, kKeyLd, q_columns + offset,
                                    kWidth, rows, d);
          weigh<kVecs>(scores, strip[s], segment, bias);
          multiply<kVecs, 1, true>(sums + offset, kWidth, v_rows + j * d_ld, d_ld, scores,
                                   kVecs * kW, d, rows);
        };
        segment.vecs == 2 ? attend.template operator()<2>() : attend.template operator()<1>();
      }
    }
  }
  const T scale = T(1) / static_cast<T>(p.scaling_seqlen);
  for (int64_t s = 0; s < strips; ++s) {
    for (int vec = 0; vec < 2; ++vec) {
      const int64_t first = task.last - (strips - s) * kWidth + vec * kW;
      unpack_transposed(out + task.first * p.out.row_stride, p.out.row_stride,
                        sums + s * strip_size + vec * kW, kWidth, first - task.first,
                        task.last - task.first, d, scale);
    }
  }
}

}  // namespace
}  // namespace cpu

void hstu_attention_forward_cpu(const HstuAttentionParams& params, DType dtype) {
  thread_local std::vector<cpu::Task> tasks_of_thread;
  std::vector<cpu::Task>& tasks = tasks_of_thread;
  cpu::list_tasks(params, tasks);
  cpu::dispatch(dtype, [&](auto zero) {
    parallel_tasks(static_cast<int64_t>(tasks.size()), [&](int64_t task) {
      cpu::run_task<decltype(zero)>(params, tasks[static_cast<size_t>(task)]);
    });
  });
}

}  // namespace seqfuse::ops
