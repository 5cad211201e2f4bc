#include "training/loop/resumed_config.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"

namespace seqfuse::training {
namespace {

// Table classes say where rows live, not what they are; their sizes come from the dataset.
const std::set<std::string_view> kClasses = {"EmbeddingArgs", "DynamicEmbeddingArgs"};

const std::set<std::string_view> kParameters = {
    "TrainerArgs.train_batch_size",
    "TrainerArgs.eval_batch_size",
    "TrainerArgs.eval_interval",
    "TrainerArgs.log_interval",
    "TrainerArgs.max_train_iters",
    "TrainerArgs.max_eval_iters",
    "TrainerArgs.profile",
    "TrainerArgs.profile_step_start",
    "TrainerArgs.profile_step_end",
    "TrainerArgs.ckpt_save_interval",
    "TrainerArgs.ckpt_save_dir",
    "TrainerArgs.ckpt_load_dir",
    "TrainerArgs.pipeline_type",
    "TrainerArgs.enable_balanced_shuffler",
    "TrainerArgs.num_epochs",
    "TrainerArgs.eval_interval_epochs",
    "TrainerArgs.ckpt_keep",
    "TrainerArgs.on_checkpoint_error",
    "TrainerArgs.early_stopping_patience",
    "TrainerArgs.early_stopping_metric",
    "TrainerArgs.gradient_accumulation_steps",
    "TrainerArgs.deterministic",
    "TrainerArgs.allow_tf32",
    "TrainerArgs.cuda_graph",
    "TrainerArgs.num_loader_threads",
    "TrainerArgs.rank_timeout_seconds",
    "DatasetArgs.dataset_path",  // may be another copy, which is checked
    "NetworkArgs.hidden_dropout",
    "NetworkArgs.dtype_str",
    "NetworkArgs.kernel_backend",
    "NetworkArgs.recompute_input_layernorm",
    "NetworkArgs.recompute_input_silu",
    "NetworkArgs.embedding_backend",
    "OptimizerArgs.learning_rate",
    "OptimizerArgs.adam_beta1",
    "OptimizerArgs.adam_beta2",
    "OptimizerArgs.adam_eps",
    "OptimizerArgs.weight_decay",
    "OptimizerArgs.lr_schedule",
    "OptimizerArgs.warmup_steps",
    "OptimizerArgs.min_learning_rate",
    "OptimizerArgs.max_grad_norm",
    "RankingArgs.eval_metrics",
    "RetrievalArgs.eval_metrics",
};

}  // namespace

std::string shown_value(const std::string& value) {
  return value.empty() ? "unset" : value;
}

bool may_change_on_resume(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  return kClasses.contains(name.substr(0, name.find('.'))) || kParameters.contains(name);
}

std::vector<report::Difference> changes_on_resume(const std::string& run, const std::string& before,
                                                  const std::string& now, models::hstu::Task task) {
  std::vector<report::Difference> changes =
      report::differences({report::split_parameters(before), report::split_parameters(now)});
  const std::string_view other_task = task == models::hstu::Task::ranking
                                          ? config::RetrievalArgs::kName
                                          : config::RankingArgs::kName;
  std::erase_if(changes, [&](const auto& change) {
    return std::string_view(change.name).substr(0, change.name.find('.')) == other_task;
  });
  std::string refused;
  for (const report::Difference& change : changes) {
    if (may_change_on_resume(change.name)) continue;
    refused += fmt::format("\n  {}: {} in the run, {} now", change.name,
                           shown_value(change.values[0]), shown_value(change.values[1]));
  }
  if (!refused.empty()) {
    throw_error<UsageError>(
        "{} cannot be resumed with another value of{}\n"
        "  leave that as it was, or start a new run: --output, with TrainerArgs.ckpt_load_dir to "
        "begin with these weights",
        run, refused);
  }
  return changes;
}

}  // namespace seqfuse::training
