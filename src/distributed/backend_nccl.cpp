#include "base/error.h"
#include "distributed/backends.h"

#ifdef SEQFUSE_HAS_NCCL
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace seqfuse::distributed {

#ifdef SEQFUSE_HAS_NCCL

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            const Launch& launch) {
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
      c10::make_intrusive<c10d::PrefixStore>("nccl", store), launch.rank, launch.size);
}

#else

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, const Launch&) {
  throw_error<UsageError>(
      "this build has no NCCL: build with nvcc, a CUDA build of PyTorch and its nvidia/nccl "
      "package, "
      "or give --device cpu");
}

#endif

}  // namespace seqfuse::distributed
