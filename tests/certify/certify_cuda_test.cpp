// Bounds on a GPU in float32 and float64, against those on the CPU in float64.
#include <gtest/gtest.h>

#include "certify/margins.h"
#include "tests/certify/tiny_classifier.h"
#include "tests/missing_gpu.h"

namespace seqfuse::certify_cuda_test {
namespace {

using certify::LayerNorm;
using certify::Method;
using certify::Norm;
using test::TinyClassifier;

TEST(CertifyCuda, BoundsAreThoseOfTheCpuAndFloat32IsLooser) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  for (const LayerNorm layer_norm : {LayerNorm::no_division, LayerNorm::standard}) {
    const TinyClassifier tiny =
        TinyClassifier::of(layer_norm == LayerNorm::standard ? "gelu" : "relu", layer_norm, 2);
    const std::vector<int64_t> ids{2, 7, 5, 1};
    const auto margins = [&](const at::TensorOptions& options, Method method, Norm norm) {
      const auto classifier = tiny.make(options);
      const auto ball = test::ball_around(classifier.embeddings(ids), {1, 3}, norm, {1e-4, 1e-3});
      return certify::margins(classifier.graph(4), ball, {0, 0}, {.method = method});
    };
    for (const Method method : {Method::ibp, Method::crown_baf, Method::crown}) {
      for (const Norm norm : {Norm::l1, Norm::l2, Norm::linf}) {
        const auto expected = margins(at::kDouble, method, norm);
        const auto wide = margins(at::TensorOptions(at::kCUDA).dtype(at::kDouble), method, norm);
        const auto narrow = margins(at::TensorOptions(at::kCUDA).dtype(at::kFloat), method, norm);
        EXPECT_TRUE(at::allclose(wide.lower, expected.lower, 1e-6, 1e-7));
        EXPECT_TRUE(at::allclose(wide.upper, expected.upper, 1e-6, 1e-7));
        EXPECT_TRUE((narrow.lower <= expected.lower + 1e-9).all().item<bool>());
        EXPECT_TRUE((narrow.upper >= expected.upper - 1e-9).all().item<bool>());
      }
    }
  }
}

}  // namespace
}  // namespace seqfuse::certify_cuda_test
