// PyTorch's settings of the whole process, which a test may change.
#pragma once

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "base/parallel.h"

namespace seqfuse::test {

// The settings at the time of construction.
class TorchSettings {
 public:
  void restore() const {
    at::Context& context = at::globalContext();
    if (context.allowTF32CuBLAS() != tf32_) context.setAllowTF32CuBLAS(tf32_);
    context.setDeterministicAlgorithms(deterministic_, warn_only_);
    context.setDeterministicFillUninitializedMemory(fill_);
    if (at::get_num_threads() != torch_threads_) at::set_num_threads(torch_threads_);
    if (num_threads() != threads_) set_num_threads(threads_);
  }

  bool operator==(const TorchSettings&) const = default;

 private:
  bool tf32_ = at::globalContext().allowTF32CuBLAS();
  bool deterministic_ = at::globalContext().deterministicAlgorithms();
  bool warn_only_ = at::globalContext().deterministicAlgorithmsWarnOnly();
  bool fill_ = at::globalContext().deterministicFillUninitializedMemory();
  int torch_threads_ = at::get_num_threads();
  int threads_ = num_threads();
};

}  // namespace seqfuse::test
