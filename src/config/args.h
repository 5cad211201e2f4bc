// Lists every configurable parameter once. visit() drives gin binding, --help, printing, checkpoint
// metadata and docs/config.md. Class and parameter names are the field's; ours follow their style.
//
// visit(v) calls v(member, "name", "help") for each parameter, or v.required(member, "name",
// "help"). validate.cpp checks ranges and sets of names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/choices.h"
#include "metrics/ranking_metric.h"

namespace seqfuse::config {

struct TrainerArgs {
  static constexpr const char* kName = "TrainerArgs";
  static constexpr const char* kSummary =
      "The training loop: batches, evaluations, checkpoints, when to stop.";
  int64_t train_batch_size = 128;
  int64_t eval_batch_size = 128;
  int64_t eval_interval = 100;
  int64_t log_interval = 100;
  std::optional<int64_t> max_train_iters;
  std::optional<int64_t> max_eval_iters;
  int64_t seed = 1234;
  bool profile = false;
  int64_t profile_step_start = 100;
  int64_t profile_step_end = 200;
  int64_t ckpt_save_interval = -1;
  std::string ckpt_save_dir = "./checkpoints";
  std::string ckpt_load_dir;
  Pipeline pipeline_type = Pipeline::native;
  bool enable_balanced_shuffler = false;
  // Added by seqfuse.
  std::optional<int64_t> num_epochs;
  std::optional<int64_t> eval_interval_epochs;
  int64_t ckpt_keep = 3;
  OnCheckpointError on_checkpoint_error = OnCheckpointError::stop;
  int64_t early_stopping_patience = 0;
  std::string early_stopping_metric;
  int64_t gradient_accumulation_steps = 1;
  bool deterministic = true;
  bool allow_tf32 = true;
  bool cuda_graph = false;
  int64_t num_loader_threads = 1;
  bool drop_last = false;
  double rank_timeout_seconds = 10;

  template <class V>
  void visit(V& v) {
    v.required(train_batch_size, "train_batch_size",
               "users (sequences) in a training batch of one process");
    v.required(eval_batch_size, "eval_batch_size", "users in an evaluation batch of one process");
    v(eval_interval, "eval_interval", "steps between evaluations; 0: only at the end");
    v(log_interval, "log_interval", "steps between lines of metrics.jsonl");
    v(max_train_iters, "max_train_iters", "steps of training; None: by num_epochs");
    v(max_eval_iters, "max_eval_iters", "batches in an evaluation; None: all");
    v(seed, "seed", "seed of initial weights, shuffling, dropout and negatives");
    v(profile, "profile", "profile steps: a table in the log, RUN/profile.json, RUN/trace.json");
    v(profile_step_start, "profile_step_start", "steps before the first profiled one");
    v(profile_step_end, "profile_step_end", "last profiled step");
    v(ckpt_save_interval, "ckpt_save_interval",
      "steps between checkpoints; -1: at evaluations and the end");
    v(ckpt_save_dir, "ckpt_save_dir", "directory of checkpoints unless --output is given");
    v(ckpt_load_dir, "ckpt_load_dir", "start from the weights of this checkpoint");
    v(pipeline_type, "pipeline_type",
      "none, native or prefetch: prepare batches when needed, ahead, or further ahead with rows of "
      "cached tables");
    v(enable_balanced_shuffler, "enable_balanced_shuffler",
      "several processes: assign users by predicted work, not by count");
    v(num_epochs, "num_epochs",
      "passes over the training users; None: by max_train_iters, or 1 if that is None too");
    v(eval_interval_epochs, "eval_interval_epochs",
      "epochs between evaluations; replaces eval_interval");
    v(ckpt_keep, "ckpt_keep", "number of newest checkpoints to keep");
    v(on_checkpoint_error, "on_checkpoint_error",
      "stop, or continue training when a checkpoint cannot be written, such as on a full disk");
    v(early_stopping_patience, "early_stopping_patience",
      "evaluations without improvement before stopping; 0: never");
    v(early_stopping_metric, "early_stopping_metric",
      "metric to watch; empty: the first one reported");
    v(gradient_accumulation_steps, "gradient_accumulation_steps",
      "batches per step; their gradients are accumulated");
    v(deterministic, "deterministic", "same seed, same losses, bit for bit");
    v(allow_tf32, "allow_tf32", "GPU, float32: matrix products in TF32, with 10 bits of mantissa");
    v(cuda_graph, "cuda_graph",
      "GPU: run steps as CUDA graphs, with batches padded to a few sizes (docs/gpu.md)");
    v(num_loader_threads, "num_loader_threads", "background threads that prepare batches");
    v(drop_last, "drop_last", "skip an epoch's last batch if it is not full");
    v(rank_timeout_seconds, "rank_timeout_seconds",
      "several processes: a process without heartbeat for this long ends the job");
  }

  bool operator==(const TrainerArgs&) const = default;
};

struct DatasetArgs {
  static constexpr const char* kName = "DatasetArgs";
  static constexpr const char* kSummary = "The dataset directory, its split, and its windows.";
  std::string dataset_name;
  int64_t max_history_seqlen = 0;
  std::string dataset_path;
  int64_t max_num_candidates = 0;
  bool shuffle = false;
  // Added by seqfuse.
  SplitKind split = SplitKind::user;
  double train_fraction = 0.7;
  Truncate truncate = Truncate::newest;
  bool hold_out_validation = false;
  EvaluateOn evaluate_on = EvaluateOn::test;

  template <class V>
  void visit(V& v) {
    v.required(dataset_name, "dataset_name",
               "ml-1m, kuairand-1k, ...: must match the dataset's manifest");
    v.required(max_history_seqlen, "max_history_seqlen", "events of history in a window");
    v(dataset_path, "dataset_path", "directory made by `seqfuse preprocess`; --data overrides it");
    v(max_num_candidates, "max_num_candidates",
      "ranking: number of last events of a window to predict; 0: every event");
    v(shuffle, "shuffle", "new order of users in every epoch");
    v(split, "split", "leave_one_out, user or temporal");
    v(train_fraction, "train_fraction",
      "share of users (split user) or events (temporal) for training");
    v(truncate, "truncate",
      "events of a long history to keep: newest, oldest, or random (drawn anew in every training "
      "epoch)");
    v(hold_out_validation, "hold_out_validation", "keep validation events out of training");
    v(evaluate_on, "evaluate_on", "test or validation: events for evaluations during training");
  }

  bool operator==(const DatasetArgs&) const = default;
};

struct NetworkArgs {
  static constexpr const char* kName = "NetworkArgs";
  static constexpr const char* kSummary = "The HSTU network.";
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t kv_channels = 0;
  double hidden_dropout = 0.2;
  double norm_epsilon = 1e-5;
  bool is_causal = true;
  ComputeType dtype_str = ComputeType::bfloat16;
  KernelBackend kernel_backend = KernelBackend::cutlass;
  int64_t target_group_size = 1;
  int64_t num_position_buckets = 8192;
  bool recompute_input_layernorm = false;
  bool recompute_input_silu = false;
  int64_t item_embedding_dim = -1;
  int64_t contextual_embedding_dim = -1;
  int64_t scaling_seqlen = -1;
  std::optional<std::string> embedding_backend;
  bool disable_contextual_mask = false;
  // Added by seqfuse.
  Architecture architecture = Architecture::hstu;
  int64_t max_attn_len = 0;
  int64_t min_full_attn_seq_len = 0;
  int64_t num_time_buckets = 128;

  template <class V>
  void visit(V& v) {
    v.required(num_layers, "num_layers", "HSTU layers");
    v.required(hidden_size, "hidden_size", "width D of a token");
    v.required(num_attention_heads, "num_attention_heads", "heads H");
    v.required(kv_channels, "kv_channels", "head_dim d of q, k, u and v");
    v(hidden_dropout, "hidden_dropout", "dropout on the input and before the output projection");
    v(norm_epsilon, "norm_epsilon", "added to the variance in layer norms");
    v(is_causal, "is_causal", "a token sees itself and earlier tokens; False: all tokens");
    v(dtype_str, "dtype_str", "bfloat16, float16 or float32 on a GPU; the CPU computes in float32");
    v(kernel_backend, "kernel_backend",
      "cutlass: the fused kernels, or the CPU operators without a GPU");
    v(target_group_size, "target_group_size",
      "candidates per group; a candidate sees the history and, causally, its group");
    v(num_position_buckets, "num_position_buckets", "rows of the position table (hstu)");
    v(recompute_input_layernorm, "recompute_input_layernorm",
      "recompute it in the backward pass instead of storing it");
    v(recompute_input_silu, "recompute_input_silu",
      "recompute it in the backward pass instead of storing it");
    v(item_embedding_dim, "item_embedding_dim",
      "width of item and action rows before an MLP to D; -1: D, no MLP");
    v(contextual_embedding_dim, "contextual_embedding_dim",
      "width of context rows before an MLP to D; -1: D, no MLP");
    v(scaling_seqlen, "scaling_seqlen",
      "divisor S of attention; -1: the longest window that the configuration allows");
    v(embedding_backend, "embedding_backend", "accepted for compatibility, has no effect");
    v(disable_contextual_mask, "disable_contextual_mask",
      "context rows are plain causal; always so if the loss covers the history");
    v(architecture, "architecture", "hstu or hstu_research");
    v(max_attn_len, "max_attn_len", "local attention: a token sees this many earlier ones; 0: all");
    v(min_full_attn_seq_len, "min_full_attn_seq_len",
      "local attention: this many newest tokens see all earlier ones");
    v(num_time_buckets, "num_time_buckets",
      "hstu_research: number of buckets of the time bias minus one");
  }

  bool operator==(const NetworkArgs&) const = default;
};

struct EmbeddingArgs {
  static constexpr const char* kName = "EmbeddingArgs";
  static constexpr const char* kSummary =
      "An embedding table with a fixed number of rows; one scope per table.";
  std::vector<std::string> feature_names;
  std::string table_name;
  int64_t item_vocab_size_or_capacity = 0;
  Sharding sharding_type = Sharding::by_size;

  template <class V>
  void visit(V& v) {
    v.required(feature_names, "feature_names", "features that share the table");
    v.required(table_name, "table_name", "name in checkpoints");
    v.required(item_vocab_size_or_capacity, "item_vocab_size_or_capacity",
               "rows, with BenchmarkDatasetArgs; otherwise the dataset's vocabulary says how many");
    v(sharding_type, "sharding_type",
      "several processes: data_parallel: each has all rows; model_parallel: rows are sharded by a "
      "hash of the id; auto: sharded from 262,144 rows");
  }

  bool operator==(const EmbeddingArgs&) const = default;
};

struct DynamicEmbeddingArgs {
  static constexpr const char* kName = "DynamicEmbeddingArgs";
  static constexpr const char* kSummary =
      "A table that gives ids a row when training first has them; one scope per table.";
  std::vector<std::string> feature_names;
  std::string table_name;
  int64_t item_vocab_size_or_capacity = 0;
  DynamicSharding sharding_type = DynamicSharding::model_parallel;
  std::optional<int64_t> global_hbm_for_values;
  std::optional<int64_t> item_vocab_gpu_capacity;
  std::optional<double> item_vocab_gpu_capacity_ratio;
  EvictStrategy evict_strategy = EvictStrategy::lru;
  bool caching = false;
  IdDistribution dist_type = IdDistribution::hash_roundrobin;

  template <class V>
  void visit(V& v) {
    v.required(feature_names, "feature_names", "features that share the table");
    v.required(table_name, "table_name", "name in checkpoints");
    v.required(
        item_vocab_size_or_capacity, "item_vocab_size_or_capacity",
        "most rows of the table, all processes together; each feature has a table of its own");
    v(sharding_type, "sharding_type", "model_parallel: each process has the rows of its ids");
    v(global_hbm_for_values, "global_hbm_for_values",
      "bytes of GPU memory for a table's rows, all GPUs together; other rows are in pinned host "
      "memory");
    v(item_vocab_gpu_capacity, "item_vocab_gpu_capacity",
      "rows of a table in GPU memory, all GPUs together; used if global_hbm_for_values is None");
    v(item_vocab_gpu_capacity_ratio, "item_vocab_gpu_capacity_ratio",
      "share of a table's rows in GPU memory; used if both others are None; all None: all rows");
    v(evict_strategy, "evict_strategy",
      "ids that a full table evicts: lru: unseen for longest; lfu: seen least often");
    v(caching, "caching", "keep all rows in host memory, with those in use cached in GPU memory");
    v(dist_type, "dist_type",
      "which process owns an id: hash_roundrobin: by a hash; roundrobin: id modulo the processes; "
      "continuous: a block of ids each");
  }

  bool operator==(const DynamicEmbeddingArgs&) const = default;
};

struct OptimizerArgs {
  static constexpr const char* kName = "OptimizerArgs";
  static constexpr const char* kSummary = "The optimiser and its learning rate.";
  OptimizerKind optimizer_str = OptimizerKind::adam;
  double learning_rate = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  // Added by seqfuse.
  double weight_decay = 0.01;
  std::optional<OptimizerKind> embedding_optimizer_str;  // '' in files: as optimizer_str
  LearningRateSchedule lr_schedule = LearningRateSchedule::constant;
  int64_t warmup_steps = 0;
  double min_learning_rate = 0;
  double max_grad_norm = 0;
  double average_decay = 0;

  template <class V>
  void visit(V& v) {
    v.required(optimizer_str, "optimizer_str", "adamw, adam, sgd or row_wise_adagrad");
    v.required(learning_rate, "learning_rate", "peak of the schedule");
    v(adam_beta1, "adam_beta1", "decay of the first moment");
    v(adam_beta2, "adam_beta2", "decay of the second moment");
    v(adam_eps, "adam_eps", "added to the root of the second moment");
    v(weight_decay, "weight_decay", "adamw: decoupled; adam, sgd: L2; never on embedding tables");
    v(embedding_optimizer_str, "embedding_optimizer_str",
      "for embedding tables; empty: as optimizer_str");
    v(lr_schedule, "lr_schedule", "constant or cosine, after warmup_steps");
    v(warmup_steps, "warmup_steps", "steps of linear warm-up");
    v(min_learning_rate, "min_learning_rate", "end of the cosine");
    v(max_grad_norm, "max_grad_norm", "gradients are scaled down to this norm; 0: never");
    v(average_decay, "average_decay",
      "evaluate and save an exponential average of the weights with this decay, such as 0.999; "
      "0: the weights themselves");
  }

  bool operator==(const OptimizerArgs&) const = default;
};

struct TensorModelParallelArgs {
  static constexpr const char* kName = "TensorModelParallelArgs";
  static constexpr const char* kSummary = "Splitting layers over GPUs.";
  int64_t tensor_model_parallel_size = 1;

  template <class V>
  void visit(V& v) {
    v(tensor_model_parallel_size, "tensor_model_parallel_size", "only 1 is supported");
  }

  bool operator==(const TensorModelParallelArgs&) const = default;
};

struct RankingArgs {
  static constexpr const char* kName = "RankingArgs";
  static constexpr const char* kSummary =
      "`seqfuse train ranking`: predicts the action on each candidate.";
  std::vector<int64_t> prediction_head_arch;
  Activation prediction_head_act_type = Activation::relu;
  bool prediction_head_bias = true;
  int64_t num_tasks = 1;
  std::vector<metrics::RankingMetric> eval_metrics = {metrics::RankingMetric::auc};
  // Added by seqfuse.
  std::optional<int64_t> label_threshold;

  template <class V>
  void visit(V& v) {
    v.required(prediction_head_arch, "prediction_head_arch",
               "widths of the head's layers; the last is the number of tasks or of classes");
    v(prediction_head_act_type, "prediction_head_act_type", "relu or gelu");
    v(prediction_head_bias, "prediction_head_bias", "biases in the head");
    v(num_tasks, "num_tasks", "task t predicts bit t of the action; 1 with a wider head: classes");
    v(eval_metrics, "eval_metrics", "AUC, NE, ACC, GAUC");
    v(label_threshold, "label_threshold", "one task: label is 1 where action >= this");
  }

  bool operator==(const RankingArgs&) const = default;
};

struct RetrievalArgs {
  static constexpr const char* kName = "RetrievalArgs";
  static constexpr const char* kSummary = "`seqfuse train retrieval`: predicts the next item.";
  int64_t num_negatives = -1;
  double temperature = 0.05;
  double l2_norm_eps = 1e-6;
  std::vector<std::string> eval_metrics = {"HR@10", "NDCG@10"};
  // Added by seqfuse.
  Negatives negatives = Negatives::in_batch;
  bool mask_seen = false;
  bool filter_seen = true;

  template <class V>
  void visit(V& v) {
    v(num_negatives, "num_negatives",
      "negatives per position; -1 with in_batch: as many as positions");
    v(temperature, "temperature", "logits are divided by it");
    v(l2_norm_eps, "l2_norm_eps", "smallest norm in L2 normalisation");
    v(eval_metrics, "eval_metrics", "HR@K, NDCG@K for any K, MRR");
    v(negatives, "negatives", "in_batch, uniform, or full (softmax over the catalogue)");
    v(mask_seen, "mask_seen",
      "negatives 'full': exclude items from the softmax that the user saw before the event");
    v(filter_seen, "filter_seen", "rank only items that the user has not seen");
  }

  bool operator==(const RetrievalArgs&) const = default;
};

struct RandomDistribution {
  static constexpr const char* kName = "RandomDistribution";
  static constexpr const char* kSummary =
      "A distribution of random lengths or values; one scope per distribution.";
  Distribution dist_type = Distribution::uniform;
  double low = 0;
  std::optional<double> high;
  double mean = 0, std = 0, alpha = 1.5;

  template <class V>
  void visit(V& v) {
    v(dist_type, "dist_type", "uniform, normal, zipf or lognormal");
    v(low, "low", "smallest value");
    v(high, "high", "values are below it; None: as large as the feature allows");
    v(mean, "mean", "normal, lognormal");
    v(std, "std", "normal, lognormal");
    v(alpha, "alpha", "zipf: exponent");
  }

  bool operator==(const RandomDistribution&) const = default;
};

struct FeatureArgs {
  static constexpr const char* kName = "FeatureArgs";
  static constexpr const char* kSummary =
      "Features of random data with the same lengths; one scope per group.";
  std::vector<std::string> feature_names;
  int64_t max_sequence_length = 0;
  bool is_jagged = false;
  std::optional<RandomDistribution> seqlen_dist;
  std::map<std::string, RandomDistribution> value_dists;

  template <class V>
  void visit(V& v) {
    v.required(feature_names, "feature_names", "features with these lengths");
    v.required(max_sequence_length, "max_sequence_length", "longest sequence");
    v(is_jagged, "is_jagged", "lengths vary");
    v(seqlen_dist, "seqlen_dist", "distribution of lengths; None: uniform");
    v(value_dists, "value_dists",
      "distributions of values by feature name; uniform for other features");
  }

  bool operator==(const FeatureArgs&) const = default;
};

using TableArgs = std::variant<EmbeddingArgs, DynamicEmbeddingArgs>;

struct BenchmarkDatasetArgs {
  static constexpr const char* kName = "BenchmarkDatasetArgs";
  static constexpr const char* kSummary = "Random data instead of a dataset directory, for timing.";
  std::vector<FeatureArgs> feature_args;
  std::vector<TableArgs> embedding_args;
  std::string item_feature_name;
  std::vector<std::string> contextual_feature_names;
  std::optional<std::string> action_feature_name;
  int64_t max_num_candidates = 0;
  int64_t num_generated_batches = 100;

  template <class V>
  void visit(V& v) {
    v.required(feature_args, "feature_args", "features to generate");
    v.required(embedding_args, "embedding_args", "their tables");
    v.required(item_feature_name, "item_feature_name", "name of the item feature");
    v.required(contextual_feature_names, "contextual_feature_names",
               "names of the context features");
    v(action_feature_name, "action_feature_name", "name of the action feature");
    v(max_num_candidates, "max_num_candidates", "number of last events of a window to predict");
    v(num_generated_batches, "num_generated_batches", "batches to generate; training repeats them");
  }

  bool operator==(const BenchmarkDatasetArgs&) const = default;
};

}  // namespace seqfuse::config
