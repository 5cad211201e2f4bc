// CUTLASS: wgmma on stages that TMA fills. Two warp groups work on a tile each and alternate, so
// that one multiplies while the other runs its epilogue, which is long: an exponential and a
// division per element, and two results to write.
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "ops/kernels/gemm/gemm_silu_variant.h"
#include "ops/kernels/gemm/silu.cuh"

namespace seqfuse::ops {
namespace {

using cute::_1;
namespace collective = cutlass::epilogue::collective;
namespace fusion = cutlass::epilogue::fusion;

template <class Values>
struct SiluOfEach {
  CUTLASS_DEVICE Values operator()(Values values) const {
    for (auto& value : values) value = silu(value);
    return values;
  }
};

template <class T>
struct Shape {
  using RowMajor = cutlass::layout::RowMajor;
  using Tile = cute::Shape<cute::_128, cute::_128, cute::_64>;  // of m, n and k
  using Cluster = cute::Shape<cute::_2, _1, _1>;                // shares loads of b
  using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized;
  using MainloopSchedule = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  static constexpr int kAlignment = 8;  // elements
  static constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;

  using EpilogueTile = collective::EpilogueTileAuto;
  using Description =
      collective::detail::EpilogueDescriptor<Tile, EpilogueTile, void, T, EpilogueSchedule>;
  using StoreOfZ = collective::detail::AuxStoreDescriptor<Description, RowMajor, T>;

  // y = silu(z), z = sums + bias: each type is an operation and its operands.
  using Z = fusion::Sm90EVT<fusion::Sm90Compute<cutlass::plus, T, float, kRound>,
                            fusion::Sm90AccFetch, fusion::Sm90RowBroadcast<0, Tile, T, float>>;
  using StoredZ = fusion::Sm90EVT<
      fusion::Sm90AuxStore<StoreOfZ::Stages, typename Description::EpilogueTile, T, kRound,
                           typename StoreOfZ::Stride, typename StoreOfZ::SmemLayoutAtom,
                           typename StoreOfZ::CopyOpR2S>,
      Z>;
  using Y = fusion::Sm90EVT<fusion::Sm90Compute<SiluOfEach, T, float, kRound>, StoredZ>;

  using Epilogue =
      typename collective::CollectiveBuilder<cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp,
                                             Tile, Cluster, EpilogueTile, float, float, void,
                                             RowMajor, kAlignment, T, RowMajor, kAlignment,
                                             EpilogueSchedule, Y>::CollectiveOp;
  using Ring = cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
      sizeof(typename Epilogue::SharedStorage))>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, T, RowMajor, kAlignment, T, RowMajor,
      kAlignment, float, Tile, Cluster, Ring, MainloopSchedule>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
};

template <class T>
cudaError_t launch(const GemmSiluParams& p, cudaStream_t stream) {
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<typename Shape<T>::Kernel>;
  int device = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;

  typename Gemm::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  arguments.problem_shape = {static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k),
                             1};
  arguments.mainloop = {static_cast<const T*>(p.a),
                        {p.a_stride, _1(), 0},
                        static_cast<const T*>(p.b),
                        {_1(), p.b_stride, 0}};
  arguments.epilogue.ptr_D = static_cast<T*>(p.y);
  arguments.epilogue.dD = {p.y_stride, _1(), 0};
  auto& stored_z = arguments.epilogue.thread.op_0;
  stored_z.op_1 = {static_cast<T*>(p.z), {p.z_stride, _1(), 0}};
  stored_z.op_0.op_1.ptr_row = static_cast<const T*>(p.bias);
  arguments.hw_info.device_id = device;
  arguments.hw_info.sm_count = processors;
  // Concurrent tiles share a few rows of a and all of b.
  using Order =
      cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90Params::RasterOrderOptions;
  arguments.scheduler.raster_order = Order::AlongN;

  Gemm gemm;
  const bool enqueued = gemm.initialize(arguments, nullptr, stream) == cutlass::Status::kSuccess &&
                        gemm.run(stream) == cutlass::Status::kSuccess;
  error = cudaGetLastError();
  return enqueued || error != cudaSuccess ? error : cudaErrorUnknown;
}

}  // namespace

const gemm::Variant& gemm::gemm_silu_sm90() {
  using OfEither = Shape<cutlass::half_t>;  // both types have the same
  static const Variant variant{
      .config = {.kernel = "cutlass::gemm::kernel::GemmUniversal",
                 .architecture = 90,
                 .tile_m = cute::size<0>(OfEither::Tile()),
                 .tile_n = cute::size<1>(OfEither::Tile()),
                 .tile_k = cute::size<2>(OfEither::Tile()),
                 .stages = OfEither::Mainloop::DispatchPolicy::Stages,
                 .warps = static_cast<int>(OfEither::Kernel::MaxThreadsPerBlock) / 32,
                 .blocks = static_cast<int>(OfEither::Kernel::MinBlocksPerMultiprocessor),
                 .shared_bytes = static_cast<int>(OfEither::Kernel::SharedStorageSize)},
      .launch = [](const GemmSiluParams& params, DType dtype, cudaStream_t stream) {
        return dtype == DType::bf16 ? launch<cutlass::bfloat16_t>(params, stream)
                                    : launch<cutlass::half_t>(params, stream);
      }};
  return variant;
}

}  // namespace seqfuse::ops
