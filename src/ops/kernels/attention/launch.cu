#include "ops/kernels/attention/launch.h"

#include <algorithm>

#include "ops/kernels/common/current_sm.h"

namespace seqfuse::ops::attention {

cudaError_t current_device(Device& device) {
  const cudaError_t error = shared_bytes_of_block(device.block_bytes);
  return error == cudaSuccess ? current_sm(device.sm) : error;
}

// The grid fills the device with the chosen number of blocks per SM, or as many as shared memory
// allows, but never exceeds the pieces of work. (A block that could not start with the others would
// start its first piece after they have finished.)
cudaError_t launch(const Variant& variant, DType dtype, const Arguments& args, int64_t pieces,
                   cudaStream_t stream, bool early) {
  const Config& chosen = variant.config;
  const Kernel kernel = dtype == DType::bf16 ? variant.bf16 : variant.f16;
  int device = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 chosen.shared_bytes);
  int bytes = 0;
  if (error == cudaSuccess) error = shared_bytes_of_processor(bytes);
  cudaFuncAttributes attributes{};
  if (error == cudaSuccess && early) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  const int blocks = std::min(chosen.blocks, blocks_within(bytes, chosen.shared_bytes));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(std::min<int64_t>(pieces, processors * blocks));
  config.blockDim = static_cast<unsigned>(32 * chosen.warps);
  config.dynamicSmemBytes = static_cast<size_t>(chosen.shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = attributes.ptxVersion >= 90 ? 1 : 0;  // older code does not wait
  return cudaLaunchKernelEx(&config, kernel, args);
}

cudaError_t launch_finish_dq(const Variant& variant, DType dtype, const Arguments& args,
                             cudaStream_t stream) {
  if (!args.dq_sums) return cudaSuccess;
  const Config& chosen = variant.config;
  const Kernel kernel = dtype == DType::bf16 ? variant.finish_dq_bf16 : variant.finish_dq_f16;
  const int tiles = (args.max_seqlen + chosen.tile_queries - 1) / chosen.tile_queries;
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(args.heads),
                  static_cast<unsigned>(args.batch));
  kernel<<<grid, static_cast<unsigned>(32 * chosen.warps), 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace seqfuse::ops::attention
