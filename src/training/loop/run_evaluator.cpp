#include "training/loop/run_evaluator.h"

#include <span>

#include "base/log.h"
#include "embeddings/dynamic_table.h"

namespace seqfuse::training {

const Metrics& RunEvaluator::run(const config::TrainerArgs& args, distributed::ProcessGroup& group,
                                 bool show_progress, const std::function<bool()>& stop) {
  if (samples_.empty()) return metrics_;
  const EvaluationOptions options{.batch_size = args.eval_batch_size,
                                  .max_batches = args.max_eval_iters.value_or(-1),
                                  .show_progress = show_progress,
                                  .stop = [&] { return !group.several() && stop(); },
                                  .group = &group};
  metrics_ = evaluate_(model_, dataset_, samples_, options);
  for (const embeddings::EmbeddingTable* table : model_.tables()) {
    const auto* dynamic = dynamic_cast<const embeddings::DynamicTable*>(table);
    if (dynamic == nullptr) continue;
    log::info("train",
              "table {}: {} rows here; in evaluations so far ids without a row were looked up {} "
              "times",
              table->name(), dynamic->rows_here(), dynamic->dynamic_rows().unknown());
  }
  if (metrics_.empty()) return metrics_;
  if (model_.spec().task == models::hstu::Task::retrieval && !target_counts_) {
    const auto evaluated =
        std::span(samples_).first(static_cast<size_t>(num_evaluated(samples_, options)));
    target_counts_ = count_targets(dataset_, evaluated);
    log::info("train", "{}", target_counts_->text(model_.spec().retrieval.filter_seen));
  }
  return metrics_;
}

}  // namespace seqfuse::training
