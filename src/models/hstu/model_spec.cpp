#include "models/hstu/model_spec.h"

#include <fmt/ranges.h>

#include <string>

#include "base/error.h"

namespace seqfuse::models::hstu {
namespace {

void check_network(const config::NetworkArgs& network, Task task) {
  SEQFUSE_CHECK_AS(
      UsageError, network.is_causal,
      "NetworkArgs.is_causal = False lets an event see the ones it is to predict: set it "
      "to True");
  SEQFUSE_CHECK_AS(UsageError, network.num_position_buckets > 0,
                   "NetworkArgs.num_position_buckets is {}: expected at least 1",
                   network.num_position_buckets);
  if (network.architecture == config::Architecture::hstu_research) {
    SEQFUSE_CHECK_AS(
        UsageError, task == Task::retrieval,
        "NetworkArgs.architecture 'hstu_research' reads no actions and cannot rank: use "
        "'hstu'");
    SEQFUSE_CHECK_AS(
        UsageError, network.item_embedding_dim <= 0 && network.contextual_embedding_dim <= 0,
        "NetworkArgs.architecture 'hstu_research' has item rows of width hidden_size and "
        "no context: leave item_embedding_dim and contextual_embedding_dim at -1");
  }
}

void check_ranking(const config::RankingArgs& ranking, const data::Manifest& manifest) {
  SEQFUSE_CHECK_AS(
      UsageError, !ranking.prediction_head_arch.empty(),
      "RankingArgs.prediction_head_arch is missing: ranking needs the widths of its head, "
      "such as [512, 8]");
  SEQFUSE_CHECK_AS(UsageError, manifest.action_kind != data::ActionKind::none,
                   "dataset {} has no actions, and ranking predicts actions: preprocess it with "
                   "--action-column, or train retrieval",
                   manifest.dataset_name);
  const int64_t width = ranking.prediction_head_arch.back(), tasks = ranking.num_tasks;
  if (ranking.label_threshold) {
    SEQFUSE_CHECK_AS(
        UsageError, tasks == 1 && width == 1,
        "RankingArgs.label_threshold makes one task of two outcomes: num_tasks and the "
        "last of prediction_head_arch must be 1, not {} and {}",
        tasks, width);
    SEQFUSE_CHECK_AS(
        UsageError, *ranking.label_threshold > 0 && *ranking.label_threshold < manifest.num_actions,
        "RankingArgs.label_threshold is {}, but labels of {} are 0 to {} ({}): "
        "expected 1 to {}",
        *ranking.label_threshold, manifest.dataset_name, manifest.num_actions - 1,
        fmt::join(manifest.action_names, ", "), manifest.num_actions - 1);
    return;
  }
  if (width == tasks) {
    const auto bits = std::ssize(manifest.action_names);
    SEQFUSE_CHECK_AS(
        UsageError, manifest.action_kind == data::ActionKind::bits,
        "the actions of {} are {} classes, but RankingArgs describe tasks: make the last "
        "of prediction_head_arch {} (classes), or set label_threshold",
        manifest.dataset_name, manifest.num_actions, manifest.num_actions);
    SEQFUSE_CHECK_AS(UsageError, tasks <= bits,
                     "RankingArgs.num_tasks is {}, but the actions of {} have {} bits", tasks,
                     manifest.dataset_name, bits);
    return;
  }
  SEQFUSE_CHECK_AS(
      UsageError, tasks == 1,
      "RankingArgs.num_tasks is {} and the last of prediction_head_arch {}: they must be "
      "equal (tasks), or num_tasks 1 (classes)",
      tasks, width);
  SEQFUSE_CHECK_AS(
      UsageError, width >= manifest.num_actions,
      "{} has {} classes of actions, but RankingArgs.prediction_head_arch ends in {}: make "
      "it {}",
      manifest.dataset_name, manifest.num_actions, width, manifest.num_actions);
}

void check_retrieval(const ModelSpec& spec) {
  const config::RetrievalArgs& retrieval = spec.retrieval;
  SEQFUSE_CHECK_AS(
      UsageError, spec.max_candidates == 0,
      "DatasetArgs.max_num_candidates is {}: retrieval predicts every next item, set it "
      "to 0",
      spec.max_candidates);
  SEQFUSE_CHECK_AS(
      UsageError,
      spec.network.item_embedding_dim <= 0 ||
          spec.network.item_embedding_dim == spec.network.hidden_size,
      "NetworkArgs.item_embedding_dim is {} and hidden_size {}: retrieval compares states "
      "with item rows, so they must be equal",
      spec.network.item_embedding_dim, spec.network.hidden_size);
  SEQFUSE_CHECK_AS(UsageError, retrieval.temperature > 0,
                   "RetrievalArgs.temperature is {}: expected more than 0", retrieval.temperature);
  SEQFUSE_CHECK_AS(UsageError,
                   retrieval.negatives != config::Negatives::uniform || retrieval.num_negatives > 0,
                   "RetrievalArgs.num_negatives is {}: expected more than 0 with uniform negatives",
                   retrieval.num_negatives);
}

}  // namespace

bool ModelSpec::reads_times() const {
  return network.architecture == config::Architecture::hstu_research;
}

bool ModelSpec::reads_actions() const {
  return network.architecture == config::Architecture::hstu && num_actions > 0;
}

bool ModelSpec::reads_context() const {
  return network.architecture == config::Architecture::hstu && !context.empty();
}

ModelSpec ModelSpec::make(Task task, const config::Config& config, const data::Manifest& manifest) {
  check_network(config.network, task);
  ModelSpec spec;
  spec.task = task;
  spec.network = config.network;
  spec.ranking = config.ranking;
  spec.retrieval = config.retrieval;
  spec.max_history = config.dataset.max_history_seqlen;
  spec.max_candidates = config.dataset.max_num_candidates;
  spec.num_items = manifest.num_items;
  spec.num_actions = manifest.action_kind == data::ActionKind::none ? 0 : manifest.num_actions;
  spec.context = manifest.context;
  spec.dataset_hash = manifest.hash;
  SEQFUSE_CHECK_AS(DataError, spec.num_items > 0, "dataset {} has no items", manifest.dataset_name);
  if (task == Task::ranking) {
    check_ranking(config.ranking, manifest);
  } else {
    check_retrieval(spec);
  }

  const bool research = spec.network.architecture == config::Architecture::hstu_research;
  if (spec.network.scaling_seqlen > 0) {
    spec.scaling_seqlen = spec.network.scaling_seqlen;
  } else if (research) {
    spec.scaling_seqlen = spec.max_history + 11;  // as published: 10 spare, and one
  } else {
    const int64_t tokens_per_event = spec.num_actions > 0 ? 2 : 1;
    spec.scaling_seqlen = static_cast<int64_t>(spec.context.size()) +
                          tokens_per_event * (spec.max_history + spec.max_candidates);
  }
  if (research) {
    SEQFUSE_CHECK_AS(UsageError, manifest.has_timestamps,
                     "dataset {} has no timestamps, which NetworkArgs.architecture 'hstu_research' "
                     "needs: preprocess it with --time-column, or use 'hstu'",
                     manifest.dataset_name);
    SEQFUSE_CHECK_AS(UsageError, spec.scaling_seqlen >= spec.max_history,
                     "NetworkArgs.scaling_seqlen is {}, but windows hold {} events: with "
                     "'hstu_research' it is also the number of positions",
                     spec.scaling_seqlen, spec.max_history);
  }
  return spec;
}

torch::ScalarType compute_dtype(const ModelSpec& spec, const torch::Tensor& weights) {
  if (!weights.is_cuda()) return weights.scalar_type();
  switch (spec.network.dtype_str) {
    case config::ComputeType::bfloat16:
      return torch::kBFloat16;
    case config::ComputeType::float16:
      return torch::kHalf;
    case config::ComputeType::float32:
      break;
  }
  return torch::kFloat;
}

}  // namespace seqfuse::models::hstu
