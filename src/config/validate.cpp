#include "config/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/names.h"
#include "config/literal.h"
#include "metrics/retrieval_metrics.h"

namespace seqfuse::config {
namespace {

using NameList = std::vector<std::string>;

class Check {
 public:
  explicit Check(const Instance& instance) : instance_(instance) {}

  template <class T>
  void that(bool condition, const char* name, const T& given, std::string_view expected) const {
    SEQFUSE_CHECK_AS(UsageError, condition, "{} is {}; expected {}", instance_.parameter(name),
                     literal(given), expected);
  }
  void at_least(int64_t smallest, int64_t value, const char* name) const {
    that(value >= smallest, name, value, fmt::format("at least {}", smallest));
  }
  void at_least(int64_t smallest, const std::optional<int64_t>& value, const char* name) const {
    if (value) at_least(smallest, *value, name);
  }
  // -1 stands for a default that is computed later.
  void positive_or_default(int64_t value, const char* name) const {
    that(value == -1 || value >= 1, name, value, "at least 1, or -1");
  }
  void positive(double value, const char* name) const {
    that(value > 0, name, value, "a number above 0");
  }
  void not_negative(double value, const char* name) const {
    that(value >= 0, name, value, "at least 0");
  }
  void fraction(double value, const char* name) const {  // [0, 1)
    that(value >= 0 && value < 1, name, value, "at least 0 and below 1");
  }
  void not_empty(const std::string& value, const char* name) const {
    that(!value.empty(), name, value, "a name");
  }
  void not_empty(const NameList& values, const char* name) const {
    that(!values.empty(), name, values, "at least one name");
  }
  void one_of(const NameList& allowed, const std::string& value, const char* name) const {
    SEQFUSE_CHECK_AS(UsageError, std::find(allowed.begin(), allowed.end(), value) != allowed.end(),
                     "{} is {}{}; expected one of {}", instance_.parameter(name), literal(value),
                     did_you_mean(value, allowed), fmt::join(allowed, ", "));
  }

 private:
  const Instance& instance_;
};

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string Instance::parameter(const std::string& name) const {
  const Binding* binding = bindings_.find(class_name_, scope_, name);
  const std::string full = scoped_name(scope_, class_name_) + "." + name;
  return binding == nullptr ? full : binding->value.location.text() + ": " + full;
}

void validate(const TrainerArgs& args, const Instance& instance) {
  const Check check(instance);
  check.at_least(1, args.train_batch_size, "train_batch_size");
  check.at_least(1, args.eval_batch_size, "eval_batch_size");
  check.at_least(0, args.eval_interval, "eval_interval");
  check.at_least(1, args.log_interval, "log_interval");
  check.at_least(1, args.max_train_iters, "max_train_iters");
  check.at_least(1, args.max_eval_iters, "max_eval_iters");
  check.at_least(0, args.seed, "seed");
  check.at_least(0, args.profile_step_start, "profile_step_start");
  check.at_least(args.profile_step_start, args.profile_step_end, "profile_step_end");
  check.positive_or_default(args.ckpt_save_interval, "ckpt_save_interval");
  check.at_least(1, args.num_epochs, "num_epochs");
  check.at_least(1, args.eval_interval_epochs, "eval_interval_epochs");
  check.at_least(1, args.ckpt_keep, "ckpt_keep");
  check.at_least(0, args.early_stopping_patience, "early_stopping_patience");
  check.at_least(1, args.gradient_accumulation_steps, "gradient_accumulation_steps");
  check.at_least(1, args.num_loader_threads, "num_loader_threads");
  check.that(args.rank_timeout_seconds >= 2, "rank_timeout_seconds", args.rank_timeout_seconds,
             "at least 2: processes send a heartbeat every second");
}

void validate(const EvaluationBatches& args, const Instance& instance) {
  Check(instance).at_least(1, args.eval_batch_size, "eval_batch_size");
}

void validate(const DatasetArgs& args, const Instance& instance) {
  const Check check(instance);
  check.not_empty(args.dataset_name, "dataset_name");
  check.at_least(1, args.max_history_seqlen, "max_history_seqlen");
  check.at_least(0, args.max_num_candidates, "max_num_candidates");
  check.that(args.train_fraction > 0 && args.train_fraction < 1, "train_fraction",
             args.train_fraction, "a number between 0 and 1");
}

void validate(const NetworkArgs& args, const Instance& instance) {
  const Check check(instance);
  check.at_least(1, args.num_layers, "num_layers");
  check.at_least(1, args.hidden_size, "hidden_size");
  check.at_least(1, args.num_attention_heads, "num_attention_heads");
  check.at_least(1, args.kv_channels, "kv_channels");
  check.fraction(args.hidden_dropout, "hidden_dropout");
  check.positive(args.norm_epsilon, "norm_epsilon");
  check.that(args.is_causal, "is_causal", args.is_causal,
             "True: every prediction would see its own label");
  check.at_least(1, args.target_group_size, "target_group_size");
  check.at_least(1, args.num_position_buckets, "num_position_buckets");
  check.positive_or_default(args.item_embedding_dim, "item_embedding_dim");
  check.positive_or_default(args.contextual_embedding_dim, "contextual_embedding_dim");
  check.positive_or_default(args.scaling_seqlen, "scaling_seqlen");
  check.at_least(0, args.max_attn_len, "max_attn_len");
  check.at_least(0, args.min_full_attn_seq_len, "min_full_attn_seq_len");
  check.at_least(1, args.num_time_buckets, "num_time_buckets");
}

void validate(const EmbeddingArgs& args, const Instance& instance) {
  const Check check(instance);
  check.not_empty(args.feature_names, "feature_names");
  check.not_empty(args.table_name, "table_name");
  check.at_least(1, args.item_vocab_size_or_capacity, "item_vocab_size_or_capacity");
}

void validate(const DynamicEmbeddingArgs& args, const Instance& instance) {
  const Check check(instance);
  check.not_empty(args.feature_names, "feature_names");
  check.not_empty(args.table_name, "table_name");
  check.at_least(1, args.item_vocab_size_or_capacity, "item_vocab_size_or_capacity");
  check.at_least(0, args.global_hbm_for_values, "global_hbm_for_values");
  check.at_least(0, args.item_vocab_gpu_capacity, "item_vocab_gpu_capacity");
  if (const auto ratio = args.item_vocab_gpu_capacity_ratio) {
    check.that(*ratio >= 0 && *ratio <= 1, "item_vocab_gpu_capacity_ratio", *ratio, "0 to 1");
  }
}

void validate(const OptimizerArgs& args, const Instance& instance) {
  const Check check(instance);
  check.positive(args.learning_rate, "learning_rate");
  check.fraction(args.adam_beta1, "adam_beta1");
  check.fraction(args.adam_beta2, "adam_beta2");
  check.positive(args.adam_eps, "adam_eps");
  check.not_negative(args.weight_decay, "weight_decay");
  check.at_least(0, args.warmup_steps, "warmup_steps");
  check.that(args.min_learning_rate >= 0 && args.min_learning_rate <= args.learning_rate,
             "min_learning_rate", args.min_learning_rate,
             fmt::format("0 to the learning rate, {}", literal(args.learning_rate)));
  check.not_negative(args.max_grad_norm, "max_grad_norm");
  check.fraction(args.average_decay, "average_decay");
}

void validate(const TensorModelParallelArgs& args, const Instance& instance) {
  Check(instance).that(
      args.tensor_model_parallel_size == 1, "tensor_model_parallel_size",
      args.tensor_model_parallel_size,
      "1: layers are not split over GPUs, because one GPU holds the dense weights of any HSTU; "
      "several GPUs share the batch instead");
}

void validate(const RankingArgs& args, const Instance& instance) {
  const Check check(instance);
  check.at_least(1, args.num_tasks, "num_tasks");
  const std::vector<int64_t>& arch = args.prediction_head_arch;
  const bool positive = std::all_of(arch.begin(), arch.end(), [](int64_t n) { return n >= 1; });
  check.that(!arch.empty() && positive, "prediction_head_arch", arch, "widths of at least 1");
  check.that(args.num_tasks == 1 || arch.back() == args.num_tasks, "prediction_head_arch", arch,
             fmt::format("{} as the last width, as num_tasks", args.num_tasks));
  check.that(!args.eval_metrics.empty(), "eval_metrics", args.eval_metrics, "at least one name");
  if (args.label_threshold) {
    check.that(args.num_tasks == 1 && arch.back() == 1, "label_threshold", *args.label_threshold,
               "None, or num_tasks = 1 and a head whose last width is 1");
  }
}

void validate(const RetrievalArgs& args, const Instance& instance) {
  const Check check(instance);
  check.positive_or_default(args.num_negatives, "num_negatives");
  check.positive(args.temperature, "temperature");
  check.positive(args.l2_norm_eps, "l2_norm_eps");
  check.not_empty(args.eval_metrics, "eval_metrics");
  for (const std::string& metric : args.eval_metrics) {
    const bool case_only = metrics::find_retrieval_metric(upper(metric)).has_value();
    check.that(metrics::find_retrieval_metric(metric).has_value(), "eval_metrics", metric,
               case_only ? literal(upper(metric)) : "HR@K, NDCG@K with K from 1, or MRR");
  }
  check.that(args.negatives != Negatives::uniform || args.num_negatives >= 1, "num_negatives",
             args.num_negatives, "at least 1 with negatives = 'uniform'");
  check.that(!args.mask_seen || args.negatives == Negatives::full, "mask_seen", args.mask_seen,
             "False, or negatives = 'full'");
}

void validate(const RandomDistribution& args, const Instance& instance) {
  const Check check(instance);
  if (args.high) {
    check.that(*args.high > args.low, "high", *args.high,
               fmt::format("more than low, {}", literal(args.low)));
  }
  check.not_negative(args.std, "std");
  check.positive(args.alpha, "alpha");
}

void validate(const FeatureArgs& args, const Instance& instance) {
  const Check check(instance);
  check.not_empty(args.feature_names, "feature_names");
  check.at_least(1, args.max_sequence_length, "max_sequence_length");
  if (args.seqlen_dist && args.seqlen_dist->high) {
    check.that(*args.seqlen_dist->high <= static_cast<double>(args.max_sequence_length),
               "max_sequence_length", args.max_sequence_length,
               fmt::format("at least seqlen_dist's high, {}", literal(*args.seqlen_dist->high)));
  }
  for (const auto& [feature, distribution] : args.value_dists) {
    check.one_of(args.feature_names, feature, "value_dists");
  }
}

void validate(const BenchmarkDatasetArgs& args, const Instance& instance) {
  const Check check(instance);
  NameList features, with_table;
  for (const FeatureArgs& group : args.feature_args) {
    features.insert(features.end(), group.feature_names.begin(), group.feature_names.end());
  }
  for (const TableArgs& table : args.embedding_args) {
    std::visit(
        [&](const auto& each) {
          with_table.insert(with_table.end(), each.feature_names.begin(), each.feature_names.end());
        },
        table);
  }
  check.one_of(features, args.item_feature_name, "item_feature_name");
  for (const std::string& name : args.contextual_feature_names) {
    check.one_of(features, name, "contextual_feature_names");
  }
  if (args.action_feature_name) {
    check.one_of(features, *args.action_feature_name, "action_feature_name");
  }
  for (const std::string& feature : features) {
    SEQFUSE_CHECK_AS(
        UsageError, std::find(with_table.begin(), with_table.end(), feature) != with_table.end(),
        "{} has no table for the feature {}; tables are for {}",
        instance.parameter("embedding_args"), literal(feature), fmt::join(with_table, ", "));
  }
  check.at_least(0, args.max_num_candidates, "max_num_candidates");
  check.at_least(1, args.num_generated_batches, "num_generated_batches");
}

namespace {

void validate_tables(const Config& config) {
  std::map<std::string, std::string> table_of_feature;
  NameList tables;
  const auto add = [&](const auto& table) {
    SEQFUSE_CHECK_AS(UsageError,
                     std::find(tables.begin(), tables.end(), table.table_name) == tables.end(),
                     "two embedding tables have the table_name {}; expected different names",
                     literal(table.table_name));
    tables.push_back(table.table_name);
    for (const std::string& feature : table.feature_names) {
      const auto [at, added] = table_of_feature.emplace(feature, table.table_name);
      SEQFUSE_CHECK_AS(UsageError, added,
                       "the feature {} is in two embedding tables, {} and {}; expected one",
                       literal(feature), literal(at->second), literal(table.table_name));
    }
  };
  for (const EmbeddingArgs& table : config.embeddings) add(table);
  for (const DynamicEmbeddingArgs& table : config.dynamic_embeddings) add(table);
}

}  // namespace

void validate(const Config& config, bool ranking, const Bindings& bindings) {
  const Instance trainer(bindings, TrainerArgs::kName, "");
  SEQFUSE_CHECK_AS(UsageError, !config.benchmark_dataset || !bindings.binds(DatasetArgs::kName),
                   "{}: both DatasetArgs and BenchmarkDatasetArgs are bound; expected one of them",
                   Instance(bindings, DatasetArgs::kName, "").parameter("dataset_name"));
  validate_tables(config);

  // Ranking reports a metric per task: "AUC is_click".
  const std::string& watched = config.trainer.early_stopping_metric;
  NameList reported;
  if (ranking) {
    for (const auto metric : config.ranking.eval_metrics) reported.emplace_back(name_of(metric));
  }
  reported.insert(reported.end(), config.retrieval.eval_metrics.begin(),
                  config.retrieval.eval_metrics.end());
  if (!watched.empty()) {
    const std::string kind = watched.substr(0, watched.find(' '));
    SEQFUSE_CHECK_AS(
        UsageError, std::find(reported.begin(), reported.end(), kind) != reported.end(),
        "{} is {}{}; expected one of eval_metrics: {}", trainer.parameter("early_stopping_metric"),
        literal(watched), did_you_mean(kind, reported), fmt::join(reported, ", "));
  }
}

}  // namespace seqfuse::config
