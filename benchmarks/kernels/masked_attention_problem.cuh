// Softmax attention under a mask on the GPU: 16-bit inputs, the mask's lists, launches.
#pragma once

#include <random>
#include <vector>

#include "benchmarks/kernels/hstu_attention_time.cuh"
#include "masks/block_mask.h"
#include "masks/user_masks.h"
#include "ops/kernels/attention/masked_attention.h"

namespace seqfuse::bench {

struct MaskedSizes {
  int64_t batch = 1, heads = 1, key_heads = 1, head_dim = 64;
};

inline float from_16_bits(uint16_t bits, bool bf16) {
  if (bf16) {
    __nv_bfloat16_raw raw;
    raw.x = bits;
    return __bfloat162float(__nv_bfloat16(raw));
  }
  __half_raw raw;
  raw.x = bits;
  return __half2float(__half(raw));
}

inline uint16_t to_16_bits(float x, bool bf16) {
  return bf16 ? __nv_bfloat16_raw(__float2bfloat16(x)).x : __half_raw(__float2half(x)).x;
}

// What a tensor looks like in memory, if contiguous: [batch, heads, rows, head_dim], or [batch, rows,
// heads, head_dim] with a gap after each row.
enum class Layout { heads_first, rows_first_with_gaps };

// A tensor, and its host values [batch, heads, rows, head_dim].
class MaskedTensor {
 public:
  static constexpr int64_t kGap = 8;

  MaskedTensor(Layout layout, int64_t batch, int64_t heads, int64_t rows, int64_t dim, bool bf16)
      : batch_(batch),
        heads_(heads),
        rows_(rows),
        dim_(dim),
        row_stride_(layout == Layout::heads_first ? dim : heads * dim + kGap),
        head_stride_(layout == Layout::heads_first ? rows * dim : dim),
        batch_stride_(layout == Layout::heads_first ? heads * rows * dim : rows * row_stride_),
        bf16_(bf16),
        buffer_(static_cast<size_t>(batch * batch_stride_)) {
    buffer_.fill(0xff);  // NaN
  }

  ops::BatchedHeads view() const {
    return {buffer_.get(), batch_stride_, head_stride_, row_stride_};
  }
  void poison() { buffer_.fill(0xff); }

  // Random values, rounded; rows for which hidden(b, row) stay NaN.
  template <class Hidden>
  void randomize(std::mt19937& random, Hidden&& hidden) {
    std::normal_distribution<float> normal;
    std::vector<uint16_t> bits(buffer_.size(), 0xffff);
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t r = 0; r < rows_; ++r)
        for (int64_t c = 0; c < heads_ * dim_ && !hidden(b, r); ++c)
          bits[at(b, c / dim_, r, c % dim_)] = to_16_bits(normal(random), bf16_);
    must(cudaMemcpy(buffer_.get(), bits.data(), bits.size() * 2, cudaMemcpyHostToDevice), "copy");
  }

  // Random values for timing: some thousands, again and again.
  void fill_random(std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<uint16_t> few(8191), bits(buffer_.size());
    for (uint16_t& x : few) x = to_16_bits(normal(random), bf16_);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = few[i % few.size()];
    must(cudaMemcpy(buffer_.get(), bits.data(), bits.size() * 2, cudaMemcpyHostToDevice), "copy");
  }

  std::vector<double> host() const {
    const std::vector<uint16_t> bits = buffer_.host();
    std::vector<double> values;
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t h = 0; h < heads_; ++h)
        for (int64_t r = 0; r < rows_; ++r)
          for (int64_t c = 0; c < dim_; ++c)
            values.push_back(from_16_bits(bits[at(b, h, r, c)], bf16_));
    return values;
  }

 private:
  size_t at(int64_t b, int64_t h, int64_t r, int64_t c) const {
    return static_cast<size_t>(b * batch_stride_ + h * head_stride_ + r * row_stride_ + c);
  }

  int64_t batch_, heads_, rows_, dim_;
  int64_t row_stride_, head_stride_, batch_stride_;
  bool bf16_;
  Buffer<uint16_t> buffer_;
};

// The lists of a mask on the GPU.
class MaskOnGpu {
 public:
  explicit MaskOnGpu(const masks::BlockMask& mask) : view_(mask.view()) {
    const auto put = [](auto& buffer, const auto& values, auto*& pointer) {
      buffer = std::remove_reference_t<decltype(buffer)>(values);
      pointer = buffer.get();
    };
    put(row_begin_, mask.row_begin, view_.row_begin);
    put(column_, mask.column, view_.column);
    put(bitmap_, mask.bitmap, view_.bitmap);
    put(row_order_, mask.row_order, view_.row_order);
    put(column_begin_, mask.column_begin, view_.column_begin);
    put(row_, mask.row, view_.row);
    put(column_bitmap_, mask.column_bitmap, view_.column_bitmap);
    put(column_order_, mask.column_order, view_.column_order);
    put(bits_, mask.bits, view_.bits);
    put(seen_, mask.seen, view_.seen);
  }
  const masks::BlockMaskView& view() const { return view_; }

 private:
  masks::BlockMaskView view_;
  Buffer<int32_t> row_begin_, column_, bitmap_, row_order_;
  Buffer<int32_t> column_begin_, row_, column_bitmap_, column_order_;
  Buffer<uint64_t> bits_, seen_;
};

// For checks: rows with gaps, poisoned. For times: as the peers are given them, contiguous.
enum class Purpose { check, time };

struct MaskedProblem {
  masks::Mask mask;
  masks::BlockMask blocks;
  MaskOnGpu on_gpu;
  MaskedSizes s;
  bool bf16;
  Layout layout;
  MaskedTensor q, k, v, out, dout, dq, dk, dv;
  Buffer<float> lse, dlse, delta;

  // Poisoned: queries that see nothing and keys that nobody sees hold NaN.
  MaskedProblem(const masks::Mask& m, const MaskedSizes& s, bool bf16, Purpose purpose)
      : mask(m),
        blocks(m),
        on_gpu(blocks),
        s(s),
        bf16(bf16),
        layout(purpose == Purpose::time ? Layout::heads_first : Layout::rows_first_with_gaps),
        q(of_queries()),
        k(of_keys()),
        v(of_keys()),
        out(of_queries()),
        dout(of_queries()),
        dq(of_queries()),
        dk(of_keys()),
        dv(of_keys()),
        lse(rows()),
        dlse(rows()),
        delta(2 * rows()) {
    std::mt19937 random(5);
    if (purpose == Purpose::check) {
      const std::vector<uint8_t> dense = mask.dense();
      const auto any = [&](int64_t b, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
        bool seen = false;
        for (int64_t i = q0; i < q1; ++i)
          for (int64_t j = k0; j < k1; ++j)
            seen |= dense[static_cast<size_t>(
                        ((mask.batch() == 1 ? 0 : b) * mask.queries() + i) * mask.keys() + j)] != 0;
        return seen;
      };
      const auto blind = [&](int64_t b, int64_t i) { return !any(b, i, i + 1, 0, mask.keys()); };
      const auto unseen = [&](int64_t b, int64_t j) {
        return !any(b, 0, mask.queries(), j, j + 1);
      };
      q.randomize(random, blind);
      dout.randomize(random, blind);
      k.randomize(random, unseen);
      v.randomize(random, unseen);
    } else {
      for (MaskedTensor* t : {&q, &dout, &k, &v}) t->fill_random(random);
    }
    std::normal_distribution<float> normal;
    std::vector<float> values(dlse.size());
    for (float& x : values) x = normal(random);
    dlse = Buffer<float>(values);
    lse.fill(0xff);
    delta.fill(0xff);
  }

  double scale() const { return 1 / std::sqrt(static_cast<double>(s.head_dim)); }

  ops::MaskedAttentionParams params() const {
    return {.mask = on_gpu.view(),
            .batch = s.batch,
            .heads = s.heads,
            .key_heads = s.key_heads,
            .head_dim = s.head_dim,
            .scale = scale(),
            .q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .out = out.view(),
            .lse = lse.get(),
            .dout = dout.view(),
            .dq = dq.view(),
            .dk = dk.view(),
            .dv = dv.view(),
            .dlse = dlse.get(),
            .delta = delta.get()};
  }
  DType dtype() const { return bf16 ? DType::bf16 : DType::f16; }
  void forward(cudaStream_t stream = nullptr) const {
    must(ops::masked_attention_forward_cuda(params(), dtype(), stream), "forward");
  }
  void forward_by_rows(cudaStream_t stream = nullptr) const {
    must(ops::masked_attention_rows_forward_cuda(params(), dtype(), stream), "forward by rows");
  }
  void backward(cudaStream_t stream = nullptr) const {
    must(ops::masked_attention_backward_cuda(params(), dtype(), stream), "backward");
  }

 private:
  MaskedTensor of_queries() const {
    return {layout, s.batch, s.heads, mask.queries(), s.head_dim, bf16};
  }
  MaskedTensor of_keys() const {
    return {layout, s.batch, s.key_heads, mask.keys(), s.head_dim, bf16};
  }
  size_t rows() const { return static_cast<size_t>(s.batch * s.heads * mask.queries()); }
};

}  // namespace seqfuse::bench
