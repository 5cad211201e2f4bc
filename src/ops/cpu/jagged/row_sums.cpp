#include "ops/kernels/jagged/row_sums.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/row_vectors.h"

namespace seqfuse::ops {
namespace cpu {
namespace {

template <class T>
struct Term {
  int32_t id, position;
  T weight;
};

// A range of adjacent ids whose terms are stored together. One task at a time owns a range.
struct IdRange {
  int64_t first_id, num_ids;
  int64_t first_term, num_terms;
  int64_t first_touched;  // ids with a term in earlier ranges
};

// log2 of the ids in a range. A range's sums should fit in L2 and give every thread work, but the
// sort writes to all ranges at once and slows down if there are too many. Results do not depend on
// it: an id's terms are added in order of position whatever its range.
template <class T>
int range_shift(int64_t num_rows, int64_t dim) {
  constexpr int64_t kSumBytes = 128 * 1024, kMaxRanges = 1024, kRangesPerThread = 4;
  const int64_t row_bytes = round_up_to_lanes<T>(dim) * static_cast<int64_t>(sizeof(T));
  const auto num_ranges = [num_rows](int shift) { return ((num_rows - 1) >> shift) + 1; };
  int shift = 0;
  while ((row_bytes << (shift + 1)) <= kSumBytes &&
         num_ranges(shift + 1) >= kRangesPerThread * num_threads()) {
    ++shift;
  }
  while (num_ranges(shift) > kMaxRanges) ++shift;
  return shift;
}

template <class T>
class TypedRowSums final : public RowSums {
 public:
  explicit TypedRowSums(const RowSumParams& params)
      : dim_(params.dim),
        rows_(static_cast<const T*>(params.rows), params.positions, params.dim),
        terms_(params.positions * params.columns) {
    sort_terms(params);
    std::ranges::sort(ranges_by_size_, [&](int64_t a, int64_t b) {
      return std::pair(ranges_[b].num_terms, a) < std::pair(ranges_[a].num_terms, b);
    });
  }

  void write_dense(void* sums) const override {
    for_each_range([&](const IdRange& range) {
      const AlignedBuffer<T> range_sums = sum_terms(range);
      for (int64_t i = 0; i < range.num_ids; ++i) {
        std::copy_n(range_sums.data() + i * rows_.stride(), dim_,
                    static_cast<T*>(sums) + (range.first_id + i) * dim_);
      }
    });
  }

  int64_t count_touched() override {
    std::vector<int64_t> counts(ranges_.size());
    for_each_range([&](const IdRange& range) {
      counts[&range - ranges_.data()] = std::ranges::count(touched(range), true);
    });
    int64_t total = 0;
    for (size_t r = 0; r < ranges_.size(); ++r) {
      ranges_[r].first_touched = std::exchange(total, total + counts[r]);
    }
    return total;
  }

  void write_touched(int64_t* ids, void* sums) const override {
    for_each_range([&](const IdRange& range) {
      const std::vector<bool> is_touched = touched(range);
      const AlignedBuffer<T> range_sums = sum_terms(range);
      int64_t to = range.first_touched;
      for (int64_t i = 0; i < range.num_ids; ++i) {
        if (!is_touched[i]) continue;
        ids[to] = range.first_id + i;
        std::copy_n(range_sums.data() + i * rows_.stride(), dim_,
                    static_cast<T*>(sums) + to * dim_);
        ++to;
      }
    });
  }

 private:
  // A stable counting sort by range. Each part of the positions counts its terms, gets its offset
  // in every range and writes there. Parts do not depend on the number of threads.
  void sort_terms(const RowSumParams& params) {
    const int64_t columns = params.columns, more = columns - 1;
    const int shift = range_shift<T>(params.num_rows, params.dim);
    const int64_t num_ranges = ((params.num_rows - 1) >> shift) + 1;
    const int64_t num_parts = std::clamp<int64_t>(params.positions * columns / 16384, 1, 64);
    const auto for_each_part = [&](auto&& visit) {
      parallel_tasks(num_parts, [&](int64_t part) {
        visit(part, params.positions * part / num_parts, params.positions * (part + 1) / num_parts);
      });
    };

    std::vector<int64_t> places(num_parts * num_ranges);  // counts, then the next free slot
    for_each_part([&](int64_t part, int64_t begin, int64_t end) {
      int64_t* counts = places.data() + part * num_ranges;
      for (int64_t t = begin; t < end; ++t) ++counts[params.ids[t] >> shift];
      for (int64_t i = begin * more; i < end * more; ++i) ++counts[params.more_ids[i] >> shift];
    });
    int64_t place = 0;
    for (int64_t r = 0; r < num_ranges; ++r) {
      const int64_t first_id = r << shift, first_term = place;
      for (int64_t part = 0; part < num_parts; ++part) {
        int64_t& count = places[part * num_ranges + r];
        place += std::exchange(count, place);
      }
      ranges_.push_back({.first_id = first_id,
                         .num_ids = std::min(params.num_rows - first_id, int64_t{1} << shift),
                         .first_term = first_term,
                         .num_terms = place - first_term,
                         .first_touched = 0});
      ranges_by_size_.push_back(r);
    }
    for_each_part([&](int64_t part, int64_t begin, int64_t end) {
      int64_t* next = places.data() + part * num_ranges;
      const auto put = [&](int64_t id, int64_t position, T weight) {
        terms_[next[id >> shift]++] = {static_cast<int32_t>(id), static_cast<int32_t>(position),
                                       weight};
      };
      const T* weights = static_cast<const T*>(params.weights);
      for (int64_t t = begin; t < end; ++t) {
        put(params.ids[t], t, weights ? weights[t * columns] : T{1});
        for (int64_t k = 0; k < more; ++k) {
          put(params.more_ids[t * more + k], t, weights ? weights[t * columns + 1 + k] : T{1});
        }
      }
    });
  }

  // visit(range) for each range, in parallel, largest first.
  template <class Visit>
  void for_each_range(Visit&& visit) const {
    parallel_tasks(std::ssize(ranges_by_size_),
                   [&](int64_t task) { visit(ranges_[ranges_by_size_[task]]); });
  }

  // [num_ids, stride of rows_]
  AlignedBuffer<T> sum_terms(const IdRange& range) const {
    const int64_t stride = rows_.stride();
    AlignedBuffer<T> sums(range.num_ids * stride);
    std::fill_n(sums.data(), range.num_ids * stride, T{0});
    const Term<T>* terms = terms_.data() + range.first_term;
    for (int64_t i = 0; i < range.num_terms; ++i) {
      const T* row = rows_.row(terms[i].position);
      const T weight = terms[i].weight;
      T* sum = sums.data() + (terms[i].id - range.first_id) * stride;
      for (int64_t d = 0; d < stride; d += kLanes<T>) {
        store(sum + d, load(sum + d) + weight * load(row + d));
      }
    }
    return sums;
  }

  std::vector<bool> touched(const IdRange& range) const {
    std::vector<bool> result(range.num_ids);
    const Term<T>* terms = terms_.data() + range.first_term;
    for (int64_t i = 0; i < range.num_terms; ++i) result[terms[i].id - range.first_id] = true;
    return result;
  }

  int64_t dim_;
  PaddedRows<T> rows_;
  AlignedBuffer<Term<T>> terms_;  // by range, then by position and column
  std::vector<IdRange> ranges_;
  std::vector<int64_t> ranges_by_size_;  // indices into the ranges, largest first
};

}  // namespace
}  // namespace cpu

std::unique_ptr<RowSums> make_row_sums_cpu(const RowSumParams& params, DType dtype) {
  std::unique_ptr<RowSums> sums;
  cpu::dispatch(dtype, [&](auto zero) {
    sums = std::make_unique<cpu::TypedRowSums<decltype(zero)>>(params);
  });
  return sums;
}

}  // namespace seqfuse::ops
