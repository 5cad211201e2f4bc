#include "config/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "config/load.h"
#include "tests/minimal_config.h"

namespace seqfuse::config::config_validate_test {
namespace {
using testing::HasSubstr;
using testing::StartsWith;

// One line added to a ranking configuration; the line is number 12.
std::string error_of_line(const std::string& line) {
  return error_of("RankingArgs.prediction_head_arch = [16, 5]\n" + line);
}

TEST(ConfigValidate, KernelBackend) {
  EXPECT_EQ(error_of_line("NetworkArgs.kernel_backend = 'cutlass'"), "no error");
  for (const std::string backend : {"triton", "pytorch", "PyTorch"}) {
    EXPECT_EQ(error_of_line("NetworkArgs.kernel_backend = '" + backend + "'"),
              "t.gin:12:30: NetworkArgs.kernel_backend is '" + backend +
                  "': Only CUTLASS backend is supported; write 'cutlass', which also runs without "
                  "a GPU, or remove the line");
  }
  EXPECT_EQ(error_of_line("NetworkArgs.kernel_backend = 'cutlas'"),
            "t.gin:12:30: NetworkArgs.kernel_backend is 'cutlas' (did you mean 'cutlass'?); "
            "expected one of cutlass");
}

TEST(ConfigValidate, TensorParallelismIsRefusedWithAReason) {
  EXPECT_THAT(error_of_line("TensorModelParallelArgs.tensor_model_parallel_size = 2"),
              StartsWith("t.gin:12:54: TensorModelParallelArgs.tensor_model_parallel_size is 2; "
                         "expected 1: layers are not split over GPUs, because"));
}

TEST(ConfigValidate, Messages) {
  EXPECT_EQ(error_of_line("TrainerArgs.train_batch_size = 0"),
            "t.gin:12:32: TrainerArgs.train_batch_size is 0; expected at least 1");
  EXPECT_EQ(error_of_line("NetworkArgs.hidden_dropout = 1"),
            "t.gin:12:30: NetworkArgs.hidden_dropout is 1.0; expected at least 0 and below 1");
  EXPECT_EQ(error_of_line("OptimizerArgs.optimizer_str = 'adamW'"),
            "t.gin:12:31: OptimizerArgs.optimizer_str is 'adamW' (did you mean 'adamw'?); expected "
            "one of adamw, adam, sgd, row_wise_adagrad");
  EXPECT_EQ(
      error_of_line("OptimizerArgs.embedding_optimizer_str = 'adamv'"),
      "t.gin:12:41: OptimizerArgs.embedding_optimizer_str is 'adamv' (did you mean 'adamw'?); "
      "expected one of adamw, adam, sgd, row_wise_adagrad");
  EXPECT_EQ(error_of_line("RankingArgs.eval_metrics = ['NE', 'AUCC']"),
            "t.gin:12:35: RankingArgs.eval_metrics is 'AUCC' (did you mean 'AUC'?); expected one "
            "of AUC, NE, ACC, GAUC");
  EXPECT_EQ(error_of_line("RetrievalArgs.eval_metrics = ['hr@10']"),
            "t.gin:12:30: RetrievalArgs.eval_metrics is 'hr@10'; expected 'HR@10'");
  EXPECT_EQ(error_of_line("RetrievalArgs.negatives = 'uniform'"),
            "RetrievalArgs.num_negatives is -1; expected at least 1 with negatives = 'uniform'")
      << "a default has no place in the file";
  EXPECT_EQ(error_of_line("OptimizerArgs.min_learning_rate = 0.1"),
            "t.gin:12:35: OptimizerArgs.min_learning_rate is 0.1; expected 0 to the learning rate, "
            "0.001");
  EXPECT_EQ(
      error_of_line("RankingArgs.num_tasks = 8"),
      "t.gin:11:36: RankingArgs.prediction_head_arch is [16, 5]; expected 8 as the last width, "
      "as num_tasks");
}

class Refused : public testing::TestWithParam<const char*> {};
TEST_P(Refused, NamesThePlace) {
  const std::string line = GetParam();
  const std::string name = line.substr(0, line.find(' '));
  EXPECT_THAT(error_of_line(line),
              StartsWith("t.gin:12:" + std::to_string(line.find("= ") + 3) + ": " + name + " is "));
}
INSTANTIATE_TEST_SUITE_P(
    ConfigValidate, Refused,
    testing::Values(
        "TrainerArgs.eval_batch_size = -1", "TrainerArgs.eval_interval = -1",
        "TrainerArgs.log_interval = 0", "TrainerArgs.max_train_iters = 0",
        "TrainerArgs.max_eval_iters = 0", "TrainerArgs.seed = -1",
        "TrainerArgs.profile_step_start = -1", "TrainerArgs.profile_step_end = 99",
        "TrainerArgs.ckpt_save_interval = 0", "TrainerArgs.pipeline_type = 'natve'",
        "TrainerArgs.num_epochs = 0", "TrainerArgs.eval_interval_epochs = 0",
        "TrainerArgs.ckpt_keep = 0", "TrainerArgs.early_stopping_patience = -1",
        "TrainerArgs.early_stopping_metric = 'AUCC'", "TrainerArgs.gradient_accumulation_steps = 0",
        "TrainerArgs.on_checkpoint_error = 'ignore'", "TrainerArgs.num_loader_threads = 0",
        "DatasetArgs.dataset_name = ''", "DatasetArgs.max_history_seqlen = 0",
        "DatasetArgs.max_num_candidates = -1", "DatasetArgs.split = 'users'",
        "DatasetArgs.train_fraction = 1.0", "DatasetArgs.train_fraction = 0",
        "DatasetArgs.truncate = 'old'", "DatasetArgs.evaluate_on = 'train'",
        "NetworkArgs.num_layers = 0", "NetworkArgs.hidden_size = 0",
        "NetworkArgs.num_attention_heads = 0", "NetworkArgs.kv_channels = -4",
        "NetworkArgs.hidden_dropout = -0.1", "NetworkArgs.norm_epsilon = 0",
        "NetworkArgs.is_causal = False", "NetworkArgs.dtype_str = 'bf16'",
        "NetworkArgs.target_group_size = 0", "NetworkArgs.num_position_buckets = 0",
        "NetworkArgs.item_embedding_dim = 0", "NetworkArgs.contextual_embedding_dim = -2",
        "NetworkArgs.scaling_seqlen = 0", "NetworkArgs.architecture = 'sasrec'",
        "NetworkArgs.max_attn_len = -1", "NetworkArgs.min_full_attn_seq_len = -1",
        "NetworkArgs.num_time_buckets = 0", "OptimizerArgs.learning_rate = 0",
        "OptimizerArgs.adam_beta1 = 1", "OptimizerArgs.adam_beta2 = -0.5",
        "OptimizerArgs.adam_eps = 0", "OptimizerArgs.weight_decay = -1",
        "OptimizerArgs.embedding_optimizer_str = 'x'", "OptimizerArgs.lr_schedule = 'linear'",
        "OptimizerArgs.warmup_steps = -1", "OptimizerArgs.max_grad_norm = -1",
        "OptimizerArgs.average_decay = 1", "RetrievalArgs.mask_seen = True",
        "RankingArgs.num_tasks = 0", "RankingArgs.prediction_head_arch = []",
        "RankingArgs.prediction_head_arch = [0, 5]",
        "RankingArgs.prediction_head_act_type = 'silu'", "RankingArgs.eval_metrics = []",
        "RankingArgs.label_threshold = 3", "RetrievalArgs.num_negatives = 0",
        "RetrievalArgs.temperature = 0", "RetrievalArgs.l2_norm_eps = 0",
        "RetrievalArgs.eval_metrics = ['HR@0']", "RetrievalArgs.eval_metrics = ['HR@']",
        "RetrievalArgs.negatives = 'batch'"));

TEST(ConfigValidate, EarlyStoppingMetric) {
  EXPECT_EQ(error_of_line("TrainerArgs.early_stopping_metric = 'AUC'"), "no error");
  EXPECT_EQ(error_of_line("TrainerArgs.early_stopping_metric = 'AUC is_click'"), "no error");
  EXPECT_EQ(error_of_line("TrainerArgs.early_stopping_metric = 'NDCG@10'"), "no error");
  EXPECT_THAT(error_of_line("TrainerArgs.early_stopping_metric = 'NDCG@20'"),
              HasSubstr("expected one of eval_metrics: AUC, HR@10, NDCG@10"));
}

TEST(ConfigValidate, Tables) {
  const auto table = [](const std::string& scope, const std::string& name,
                        const std::string& feature) {
    return scope + "/EmbeddingArgs.table_name = '" + name + "'\n" + scope +
           "/EmbeddingArgs.feature_names = ['" + feature + "']\n" + scope +
           "/EmbeddingArgs.item_vocab_size_or_capacity = 10\n";
  };
  EXPECT_EQ(error_of_line(table("a", "x", "f") + table("b", "y", "g")), "no error");
  EXPECT_THAT(error_of_line(table("a", "x", "f") + table("b", "x", "g")),
              HasSubstr("two embedding tables have the table_name 'x'"));
  EXPECT_THAT(error_of_line(table("a", "x", "f") + table("b", "y", "f")),
              HasSubstr("the feature 'f' is in two embedding tables, 'x' and 'y'"));
  EXPECT_EQ(
      error_of_line(table("a", "x", "f") + "a/EmbeddingArgs.sharding_type = 'row'"),
      "t.gin:15:33: a/EmbeddingArgs.sharding_type is 'row'; expected one of auto, data_parallel, "
      "model_parallel");
}

TEST(ConfigValidate, DynamicTables) {
  const std::string table =
      "a/DynamicEmbeddingArgs.table_name = 'x'\n"
      "a/DynamicEmbeddingArgs.feature_names = ['f']\n"
      "a/DynamicEmbeddingArgs.item_vocab_size_or_capacity = 10\n";
  EXPECT_EQ(error_of_line(table), "no error");
  EXPECT_EQ(error_of_line(table + "a/DynamicEmbeddingArgs.sharding_type = 'data_parallel'"),
            "t.gin:15:40: a/DynamicEmbeddingArgs.sharding_type is 'data_parallel'; expected one of "
            "model_parallel");
  EXPECT_EQ(error_of_line(table + "a/DynamicEmbeddingArgs.evict_strategy = 'lfru'"),
            "t.gin:15:41: a/DynamicEmbeddingArgs.evict_strategy is 'lfru' (did you mean 'lru'?); "
            "expected one of lru, lfu");
  EXPECT_EQ(error_of_line(table + "a/DynamicEmbeddingArgs.dist_type = 'roundrobbin'"),
            "t.gin:15:36: a/DynamicEmbeddingArgs.dist_type is 'roundrobbin' (did you mean "
            "'roundrobin'?); expected one of continuous, roundrobin, hash_roundrobin");
}

}  // namespace
}  // namespace seqfuse::config::config_validate_test
