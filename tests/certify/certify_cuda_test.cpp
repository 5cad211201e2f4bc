// Bounds on a GPU in float32 and float64, against those on the CPU in float64.
#include <gtest/gtest.h>

#include "certify/margins.h"
#include "certify/recorded_margins.h"
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

// Calls run, record and replay, with other centers, labels and radii in between.
TEST(CertifyCuda, RecordedMarginsAreThoseOfTheCpu) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  const TinyClassifier tiny = TinyClassifier::of("gelu", LayerNorm::standard, 2);
  const auto classifier = tiny.make(at::TensorOptions(at::kCUDA).dtype(at::kDouble));
  const auto on_host = tiny.make(at::kDouble);
  const certify::Graph graph = classifier.graph(4), graph_on_host = on_host.graph(4);
  for (const Method method : {Method::ibp, Method::crown_baf, Method::crown}) {
    for (const Norm norm : {Norm::l1, Norm::l2, Norm::linf}) {
      const certify::MarginOptions options{.method = method};
      certify::RecordedMargins recorded(graph, {.positions = {1, 3}, .norm = norm}, options);
      for (int64_t call = 0; call < 8; ++call) {
        const std::vector<int64_t> ids{2, 7 - call % 3, 5, call};
        const int64_t label = call % tiny.classes;
        std::vector<double> eps{1e-4 * static_cast<double>(call), 1e-3};
        if (call % 2 == 1) eps.push_back(2e-3);  // each number of radii has its own recording
        const auto found = recorded.at_radii(classifier.embeddings(ids), eps, label);
        const auto expected = certify::margins(
            graph_on_host, test::ball_around(on_host.embeddings(ids), {1, 3}, norm, eps),
            std::vector<int64_t>(eps.size(), label), options);
        EXPECT_TRUE(at::allclose(found.lower, expected.lower, 1e-6, 1e-7))
            << certify::name_of(method) << " call " << call;
        EXPECT_TRUE(at::allclose(found.upper, expected.upper, 1e-6, 1e-7))
            << certify::name_of(method) << " call " << call;
      }
    }
  }
}

// One perturbed position of 20 with 96 numbers each: more rows and elements than a block of threads has.
TEST(CertifyCuda, SizesThatFillNoBlock) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  TinyClassifier tiny = TinyClassifier::of("relu", LayerNorm::no_division, 2);
  tiny.bert.heads = 3;
  tiny.bert.head_dim = 11;
  tiny.bert.inner = 70;
  tiny.bert.positions = 20;
  const std::vector<int64_t> ids{2, 7, 5, 1, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5};
  const auto margins = [&](const at::TensorOptions& options, Method method) {
    const auto classifier = tiny.make(options);
    const auto ball = test::ball_around(classifier.embeddings(ids), {9}, Norm::l2, {1e-4, 1e-3});
    return certify::margins(classifier.graph(17), ball, {0, 0}, {.method = method});
  };
  for (const Method method : {Method::crown_baf, Method::crown}) {
    const auto expected = margins(at::kDouble, method);
    const auto found = margins(at::TensorOptions(at::kCUDA).dtype(at::kDouble), method);
    EXPECT_TRUE(at::allclose(found.lower, expected.lower, 1e-6, 1e-7));
    EXPECT_TRUE(at::allclose(found.upper, expected.upper, 1e-6, 1e-7));
  }
}

}  // namespace
}  // namespace seqfuse::certify_cuda_test
