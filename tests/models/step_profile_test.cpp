// The profile of given work: kernel classes, busy time, self time, FLOPs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "models/hstu/layer_flops.h"
#include "tests/models/model_fixtures.h"
#include "training/profile/kernel_classes.h"
#include "training/profile/step_profile.h"

namespace seqfuse::training::step_profile_test {
namespace {

using testing::ElementsAre;
using enum KernelClass;

// Names as printed by nm and c++filt, with shortened template arguments.
// EveryKernelOfTheBuiltLibraryHasOne takes all names from the library itself.
TEST(KernelClasses, OurKernelsHaveClasses) {
  const std::vector<std::pair<KernelClass, std::vector<const char*>>> kernels = {
      {attention_forward,
       {"void seqfuse::ops::attention::sm80::forward_kernel<__half, "
        "seqfuse::ops::attention::sm80::ForwardShape<64, "
        "false> "
        ">(seqfuse::ops::attention::Arguments)",
        "void seqfuse::ops::attention::sm80::forward_lagging_kernel<__nv_bfloat16, "
        "seqfuse::ops::attention::sm80::ForwardLaggingShape<256, 2> "
        ">(seqfuse::ops::attention::Arguments)",
        "void seqfuse::ops::attention::sm80::forward_pairs_kernel<__nv_bfloat16, "
        "seqfuse::ops::attention::sm80::ForwardPairsShape<128> "
        ">(seqfuse::ops::attention::Arguments)",
        "seqfuse::ops::attention::forward_list_kernel(seqfuse::ops::attention::ListArguments)",
        "void seqfuse::ops::(anonymous namespace)::forward_kernel<float>("
        "seqfuse::ops::RelativeBiasParams)"}},
      {attention_backward,
       {"void "
        "seqfuse::ops::attention::sm80::backward_kernel<seqfuse::ops::attention::sm80::"
        "BackwardShape<__half, 64, "
        "false> >(seqfuse::ops::attention::Arguments)",
        "void "
        "seqfuse::ops::attention::sm80::backward_wide_kernel<seqfuse::ops::attention::sm80::"
        "BackwardWideShape<"
        "__nv_bfloat16, 256, false, seqfuse::ops::attention::sm80::Places{2, 1, 2}> >("
        "seqfuse::ops::attention::Arguments)",
        "void seqfuse::ops::attention::sm80::backward_queries_kernel<__nv_bfloat16, "
        "seqfuse::ops::attention::sm80::BackwardQueriesShape<256, false> "
        ">(seqfuse::ops::attention::Arguments)",
        "void seqfuse::ops::attention::sm80::bias_gradient_kernel<__half, "
        "seqfuse::ops::attention::sm80::BiasGradientShape<32> "
        ">(seqfuse::ops::attention::Arguments)",
        "void "
        "seqfuse::ops::attention::sm80::finish_dq_kernel<seqfuse::ops::attention::sm80::DqSums<__"
        "half, 64, 64, "
        "4> >(seqfuse::ops::attention::Arguments)",
        "void seqfuse::ops::(anonymous namespace)::backward_kernel<float>("
        "seqfuse::ops::RelativeBiasParams)",
        "seqfuse::ops::attention::bias_sums_kernel(seqfuse::ops::attention::ListArguments, "
        "seqfuse::ops::attention::BiasSums)",
        "seqfuse::ops::attention::add_totals_kernel(float const*, int, "
        "seqfuse::ops::attention::Totals)",
        "seqfuse::ops::attention::backward_prepare_kernel(seqfuse::ops::attention::"
        "BackwardPreparation)",
        "seqfuse::ops::attention::time_tables_kernel(seqfuse::ops::attention::TimeEdges, float "
        "const*, int, "
        "seqfuse::ops::attention::TimeTables*)",
        "seqfuse::ops::attention::times_kernel(seqfuse::ops::attention::ListArguments, long "
        "const*, long const*, "
        "double*, "
        "double*)"}},
      {norms,
       {"void seqfuse::ops::cuda::norm_forward_kernel<__half, 1, 128, "
        "false>(seqfuse::ops::cuda::NormForward)",
        "void seqfuse::ops::cuda::norm_forward_stream_kernel<float, "
        "true>(seqfuse::ops::cuda::NormForward)",
        "void seqfuse::ops::cuda::norm_backward_kernel<__half, 8, 32, "
        "true>(seqfuse::ops::cuda::NormBackward)",
        "void seqfuse::ops::cuda::norm_backward_stream_kernel<float, "
        "false>(seqfuse::ops::cuda::NormBackward)",
        "void seqfuse::ops::cuda::column_parts_kernel<float, "
        "false>(seqfuse::ops::cuda::NormBackward)",
        "void seqfuse::ops::cuda::add_parts_kernel<float>(float const*, long, long, float*, "
        "float*)",
        "void seqfuse::ops::(anonymous namespace)::forward_kernel<__half, 1, "
        "256>(seqfuse::ops::L2NormalizeParams)",
        "void seqfuse::ops::(anonymous namespace)::backward_kernel<__half, 1, "
        "256>(seqfuse::ops::L2NormalizeBackwardParams)"}},
      {embeddings,
       {"void seqfuse::ops::(anonymous namespace)::copy_kernel<uint2, "
        "__nv_dl_wrapper_t<__nv_dl_trailing_return_tag<cudaError "
        "(*)(seqfuse::ops::JaggedDenseParams const&, CUstream_st*), "
        "&seqfuse::ops::jagged_from_dense_cuda, seqfuse::ops::(anonymous namespace)::Move, 1u>, "
        "long "
        "const> >(long, long)",
        "void seqfuse::ops::(anonymous namespace)::repeat_backward_kernel<float>("
        "seqfuse::ops::JaggedRepeatBackwardParams)",
        "void seqfuse::ops::(anonymous namespace)::forward_kernel<float, "
        "4>(seqfuse::ops::EncodingParams)",
        "seqfuse::ops::(anonymous namespace)::position_index_kernel("
        "seqfuse::ops::PositionIndexParams)",
        "seqfuse::ops::(anonymous namespace)::time_index_kernel(seqfuse::ops::TimeIndexParams)",
        "void seqfuse::ops::(anonymous namespace)::atomic_kernel<__half, "
        "1>(seqfuse::ops::RowSumCudaParams)",
        "void seqfuse::ops::(anonymous namespace)::sorted_kernel<__half, "
        "1>(seqfuse::ops::RowSumCudaParams)"}},
      {products,
       {"void seqfuse::ops::(anonymous namespace)::gemm_silu_kernel<__nv_bfloat16>("
        "seqfuse::ops::GemmSiluParams)",
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_"
        "10collective13"
        "CollectiveMmaINS1_34MainloopSm90TmaGmmaWarpSpecialized"}},
      {loss,
       {"void seqfuse::ops::(anonymous namespace)::forward_kernel<float, 4, 8, "
        "1>(seqfuse::ops::SampledSoftmaxParams)",
        "void seqfuse::ops::(anonymous "
        "namespace)::stream_kernel<__half>(seqfuse::ops::SampledSoftmaxParams)",
        "seqfuse::ops::(anonymous namespace)::softmax_kernel(seqfuse::ops::FullSoftmaxParams)",
        "seqfuse::ops::(anonymous namespace)::sample_kernel(seqfuse::ops::SampleUniformParams)"}},
      {optimizer,
       {"seqfuse::ops::(anonymous "
        "namespace)::step_scalars_kernel(seqfuse::ops::StepScalarsParams)",
        "seqfuse::ops::(anonymous namespace)::step_start_kernel(seqfuse::ops::StepStartParams)"}},
      {other,
       {"void seqfuse::ops::(anonymous namespace)::dropout_kernel<__half, 1>(__half const*, "
        "__half*, "
        "long, seqfuse::ops::cuda::DropoutMask)"}}};
  for (const auto& [expected, names] : kernels) {
    for (const char* name : names) EXPECT_EQ(kernel_class(name), expected) << name;
  }
}

#ifdef SEQFUSE_KERNELS_LIBRARY
// Mangled names of the kernels of the built library, from the host functions that launch them.
std::set<std::string> built_kernels() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen("nm " SEQFUSE_KERNELS_LIBRARY, "r"),
                                                   pclose);
  std::string symbols;
  std::array<char, 1 << 16> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) {
    symbols.append(buffer.data(), n);
  }
  std::set<std::string> kernels;
  constexpr std::string_view kStub = "__device_stub__";
  for (size_t at = 0; (at = symbols.find(kStub, at)) != std::string::npos;) {
    at += kStub.size();
    kernels.insert("_" + symbols.substr(at, symbols.find_first_of(" \n", at) - at));
  }
  return kernels;
}

bool is_of_another_verb(const std::string& name) {
  for (const char* file :
       {"step_linear_cu", "step_norm_cu", "step_attention_cu", "step_ends_cu", "bound_steps_cu"}) {
    if (name.find(file) != std::string::npos) return true;
  }
  return false;
}

TEST(KernelClasses, EveryKernelOfTheBuiltLibraryHasOne) {
  const std::set<std::string> kernels = built_kernels();
  EXPECT_GT(kernels.size(), 100U);
  for (const std::string& name : kernels) {
    if (name.find("dropout_kernel") != std::string::npos) continue;  // elementwise
    if (is_of_another_verb(name)) continue;                          // not in a training step
    EXPECT_NE(kernel_class(name), KernelClass::other) << name;
  }
}
#endif

TEST(KernelClasses, LibraryKernelsHaveClasses) {
  const std::vector<std::pair<KernelClass, std::vector<const char*>>> kernels = {
      {products,
       {"nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NTN",
        "void "
        "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>("
        "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8::Params)",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_"
        "segment_k_off_kernel__5x_cublas",
        "ampere_sgemm_128x64_tn",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)"}},
      {optimizer,
       {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
        "namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous "
        "namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)0, false> >(int)"}},
      {other,
       {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
        "namespace)::TensorListMetadata<2>, at::native::(anonymous "
        "namespace)::CopyFunctor<c10::BFloat16, float, 2, 1, 1>, at::native::Copy<c10::BFloat16, "
        "float> >(int)"}},
      {communication,
       {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"}},
      {copies,
       {"Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)", "Memset (Device)"}},
      {loss,
       {"void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, true, "
        "false>(int)",
        "void at::native::(anonymous "
        "namespace)::nll_loss_forward_no_reduce_cuda_kernel<float>(int)"}},
      {embeddings,
       {"void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, "
        "2, "
        "2, -2, true>(int)",
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "void cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<int>(int)"}},
      {other,
       {"void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous "
        "namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1} >(int)",
        // Its name contains one of ours.
        "void at::native::elementwise_kernel<128, 4, "
        "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&) >(int)"}}};
  for (const auto& [expected, names] : kernels) {
    for (const char* name : names) EXPECT_EQ(kernel_class(name), expected) << name;
  }
}

TEST(StepProfile, CoveredIsTheUnion) {
  EXPECT_EQ(covered({}), 0);
  EXPECT_EQ(covered({{5, 9}}), 4);
  EXPECT_EQ(covered({{20, 30}, {0, 10}}), 20);
  EXPECT_EQ(covered({{0, 10}, {2, 5}, {8, 12}, {12, 13}}), 13);  // inside, over, end to end
  EXPECT_EQ(covered({{-3, 1}, {-3, 1}, {7, 7}}), 4);
}

TEST(StepProfile, OwnTimeLeavesOutWhatRanInside) {
  const std::vector<Work> work = {{"inner", {2, 5}, 1},     {"outer", {0, 10}, 1},
                                  {"innermost", {3, 4}, 1}, {"elsewhere", {1, 9}, 2},
                                  {"second", {5, 7}, 1},    {"after", {10, 12}, 1}};
  EXPECT_THAT(self_times(work), ElementsAre(2, 5, 1, 8, 2, 2));
}

TEST(StepProfile, SumsKernelsOfAGpu) {
  StepProfile profile{.device = "NVIDIA H200",
                      .on_gpu = true,
                      .first_step = 51,
                      .last_step = 52,
                      .tokens = 3000,
                      .time = 2'000'000'000,
                      .layer_flops = 989e12,
                      .peak_tflops = 989};
  // Two streams overlap for .2 of 1.2 s.
  profile.add_up({{"nvjet_a", {0, 600'000'000}},
                  {"nvjet_b", {600'000'000, 800'000'000}},
                  {"Memcpy HtoD", {600'000'000, 1'200'000'000}}});
  const nlohmann::json json = to_json(profile);
  EXPECT_EQ(json["steps"], 2);
  EXPECT_DOUBLE_EQ(json["seconds_a_step"], 1);
  EXPECT_DOUBLE_EQ(json["tokens_per_second"], 1500);
  EXPECT_DOUBLE_EQ(json["gpu_busy_seconds_a_step"], 0.6);
  EXPECT_DOUBLE_EQ(json["gpu_idle_share"], 0.4);
  EXPECT_DOUBLE_EQ(json["layer_tflops"], 494.5);
  EXPECT_DOUBLE_EQ(json["mfu"], 0.5);
  ASSERT_EQ(json["classes"].size(), 2);
  EXPECT_EQ(json["classes"][0]["name"], "matrix products");
  EXPECT_DOUBLE_EQ(json["classes"][0]["seconds_a_step"], 0.4);
  EXPECT_DOUBLE_EQ(json["classes"][0]["share"], 0.8 / 1.2);
  EXPECT_DOUBLE_EQ(json["classes"][0]["count_a_step"], 1);
  EXPECT_EQ(json["classes"][1]["name"], "copies");
  EXPECT_EQ(json["kernels"].size(), 3);
  EXPECT_EQ(json["kernels"][2]["name"], "nvjet_b");  // took the least time
  const std::string text = format_profile(profile);
  EXPECT_THAT(text, testing::HasSubstr("steps 51 to 52 on NVIDIA H200: 1000.000 ms per step"));
  EXPECT_THAT(text, testing::HasSubstr("GPU idle for 40.0 %"));
  EXPECT_THAT(text, testing::HasSubstr("50.0 % of 989"));
}

TEST(StepProfile, PeaksOfKnownCardsAlone) {
  EXPECT_EQ(peak_tflops("NVIDIA H100 80GB HBM3"), 989);
  EXPECT_EQ(peak_tflops("NVIDIA H200"), 989);
  EXPECT_EQ(peak_tflops("NVIDIA A100-SXM4-80GB"), 312);
  for (const char* name :
       {"NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA GeForce RTX 4090",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA RTX A1000", "NVIDIA GH200 480GB", ""}) {
    EXPECT_EQ(peak_tflops(name), std::nullopt) << name;
  }
}

TEST(LayerFlops, CountProductsAndPairs) {
  using models::hstu::layer_flops;
  config::Config config = models::hstu::small_config("hstu");  // 2 layers, D 8, 2 heads of 6
  config.dataset.max_num_candidates = 2;
  const auto flops = [&](models::hstu::Task task, const data::Batch& batch) {
    return layer_flops(models::hstu::ModelSpec::make(task, config, models::hstu::small_manifest()),
                       batch);
  };
  // One context, 3 events of two tokens, 2 candidates: c 1, h 6, t 2. Half of h^2 is masked.
  const double pairs = 9 * 7 - 18 + 2, products = 3 * 2 * 9 * 5 * 8 * 12;
  EXPECT_DOUBLE_EQ(*flops(models::hstu::Task::ranking, models::hstu::random_batch({5}, 2)),
                   2 * (products + 3.5 * 4 * 12 * pairs));
  config.network.max_attn_len = 4;
  EXPECT_EQ(flops(models::hstu::Task::ranking, models::hstu::random_batch({5}, 2)), std::nullopt);

  config =
      models::hstu::small_config("hstu_research");  // tokens are items; the last event is a label
  const double causal = 3 * 2 * 4 * 5 * 8 * 12 + 3.5 * 4 * 12 * (4 * 4 / 2.0);
  EXPECT_DOUBLE_EQ(*flops(models::hstu::Task::retrieval, models::hstu::random_batch({5})),
                   2 * causal);
}

}  // namespace
}  // namespace seqfuse::training::step_profile_test
