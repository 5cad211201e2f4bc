// A checkpoint against hidden states of Hugging Face in float64, if available: SEQFUSE_BERT names a
// directory with config.json, model.safetensors and golden.json, which tests/golden/make_bert_golden.py
// writes: {"ids": [B][N], "token_type_ids": [B][N], "lengths": [B], "last_hidden_state": [B][N][H]}, padded
// at the end.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "tests/encoder/tiny_bert.h"

namespace seqfuse::bert_golden_test {
namespace {

using at::Tensor;
using models::bert::Model;
using models::bert::Rows;

TEST(BertGolden, LastHiddenStates) {
  const char* folder = std::getenv("SEQFUSE_BERT");
  if (folder == nullptr) GTEST_SKIP() << "SEQFUSE_BERT names no checkpoint";
  const auto golden =
      nlohmann::json::parse(read_file(std::filesystem::path(folder) / "golden.json"));
  const auto lengths = golden["lengths"].get<std::vector<int64_t>>();
  std::vector<int64_t> ids, types;
  std::vector<double> expected;
  for (size_t b = 0; b < lengths.size(); ++b) {
    for (size_t i = 0; i < static_cast<size_t>(lengths[b]); ++i) {
      ids.push_back(golden["ids"][b][i].get<int64_t>());
      types.push_back(golden["token_type_ids"][b][i].get<int64_t>());
      const auto row = golden["last_hidden_state"][b][i].get<std::vector<double>>();
      expected.insert(expected.end(), row.begin(), row.end());
    }
  }
  const models::bert::Tokens tokens{at::tensor(ids), at::tensor(types),
                                    models::bert::positions_of(lengths, at::kCPU)};
  const Rows rows = Rows::jagged(lengths, {}, at::kCPU);
  const auto error = [&](at::ScalarType dtype, const models::bert::Program& program) {
    const Tensor states = Model::load(folder, dtype, at::kCPU).states(tokens, rows, program);
    return test::largest_difference(states.reshape({-1}), at::tensor(expected, at::kDouble));
  };
  EXPECT_LT(error(at::kDouble, models::bert::unfused()), 1e-12);
  EXPECT_LT(error(at::kDouble, models::bert::fused()), 1e-12);
  EXPECT_LE(error(at::kFloat, models::bert::fused()),
            2 * error(at::kFloat, models::bert::unfused()) + 1e-7);
}

}  // namespace
}  // namespace seqfuse::bert_golden_test
