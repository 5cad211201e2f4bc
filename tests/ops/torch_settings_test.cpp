// Process-wide settings that one test changes do not reach the next.
#include "tests/torch_settings.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <optional>

namespace seqfuse::torch_settings_test {
namespace {

using test::TorchSettings;

class TorchSettingsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    before_.emplace();
    at::manual_seed(3);
  }
  // Runs when the suite's tests have ended.
  static void TearDownTestSuite() { EXPECT_TRUE(*before_ == TorchSettings()); }

  static inline std::optional<TorchSettings> before_;
};

TEST_F(TorchSettingsTest, EndWithTheTestThatChangedThem) {
  at::globalContext().setAllowTF32CuBLAS(!at::globalContext().allowTF32CuBLAS());
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::set_num_threads(at::get_num_threads() + 1);
  set_num_threads(num_threads() + 1);
  EXPECT_FALSE(*before_ == TorchSettings());
}

TEST_F(TorchSettingsTest, RandomNumbersBeginAnew) {
  const at::Generator fresh = at::make_generator<at::CPUGeneratorImpl>(c10::default_rng_seed_val);
  EXPECT_TRUE(at::equal(at::rand({3}), at::rand({3}, fresh)));
}

}  // namespace
}  // namespace seqfuse::torch_settings_test
