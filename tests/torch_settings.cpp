// Linked into every test executable with PyTorch, so that a test has the same result alone, in any
// order and after any other test: what a test changes in the process ends with it. Training, for
// example, allows TF32 in the whole process, which rounds the products of a later test to 11 bits.
#include "tests/torch_settings.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>

namespace seqfuse::test {
namespace {

class SameStartForEachTest : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override {
    settings_.emplace();
    // Not at::manual_seed(): it starts CUDA, which does not survive the fork() of some tests.
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(c10::default_rng_seed_val);
  }
  void OnTestEnd(const testing::TestInfo&) override { settings_->restore(); }

 private:
  std::optional<TorchSettings> settings_;
};

[[maybe_unused]] const bool kListens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new SameStartForEachTest);
  return true;
}();

}  // namespace
}  // namespace seqfuse::test
