// A run of operators (fusion/codegen/row_kernel.h) as a kernel that is generated, compiled and loaded when
// it first runs, on a GPU.
#pragma once

#include <torch/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "fusion/codegen/row_kernel.h"
#include "fusion/compile/gpu_function.h"
#include "fusion/compile/kernel_cache.h"
#include "models/bert/program.h"

namespace seqfuse::models::bert {

// The operators by plain ATen, one after the other.
at::Tensor run_by_aten(const LayerRun& layer, fusion::Segment run);

// The description of a run's kernel, for rows of `columns` columns.
fusion::RowKernel row_kernel(fusion::Segment run, const Config& config, DType dtype,
                             int64_t columns);

class GeneratedRun {
 public:
  // no tile: default_tile().
  GeneratedRun(fusion::Segment run, std::optional<fusion::Tile> tile, fusion::KernelCache cache)
      : run_(run), tile_(tile), cache_(std::move(cache)) {}

  // float16 or bfloat16 on a GPU. A kernel that cannot be made is reported once, and plain ATen runs
  // instead. Threads may call it at once.
  at::Tensor operator()(const LayerRun& layer);

  // Why ATen ran, "" if it did not.
  std::string failure() const;

 private:
  struct Kernel;
  std::shared_ptr<const Kernel> kernel_for(const fusion::RowKernel& description, int device);

  fusion::Segment run_;
  std::optional<fusion::Tile> tile_;
  fusion::KernelCache cache_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, int64_t>, std::shared_ptr<const Kernel>>
      kernels_;  // by device and columns
  std::string failure_;
};

}  // namespace seqfuse::models::bert
