// Trainer: steps as CUDA graphs.
#include <string>
#include <vector>

#include "base/log.h"
#include "ops/torch/device_seeds.h"
#include "training/loop/batch_padding.h"
#include "training/loop/loop.h"
#include "training/optimizer/schedule.h"

namespace seqfuse::training {
namespace {

// Why steps on a GPU cannot be graphs; empty: they can.
std::string why_no_graphs(const config::Config& config, const models::hstu::ModelSpec& spec,
                          const embeddings::Tables& tables,
                          const distributed::ProcessGroup& group) {
  if (group.several()) return "several processes train together";
  if (config.trainer.gradient_accumulation_steps > 1) {
    return "TrainerArgs.gradient_accumulation_steps is above 1";
  }
  if (spec.task == models::hstu::Task::retrieval &&
      spec.retrieval.negatives == config::Negatives::in_batch) {
    return "the number of in-batch negatives is read back in each step";
  }
  for (const embeddings::EmbeddingTable* table : tables) {
    if (table->is_sharded() || table->num_rows() >= embeddings::kSparseTableRows) {
      return fmt::format("the number of rows of table '{}' that a step has is read back: it has {}",
                         table->name(), table->num_rows());
    }
  }
  return "";
}

}  // namespace

void Trainer::start_graphs() {
  if (!config_.trainer.cuda_graph || !device_) return;
  const std::string why_not = why_no_graphs(config_, model_.spec(), model_.tables(), group_);
  if (!why_not.empty()) {
    log::info("train", "TrainerArgs.cuda_graph has no effect: {}", why_not);
    return;
  }
  graphs_.emplace(model_.device());
  log::info("train", "steps are CUDA graphs, of batches padded to few sizes");
}

Trainer::Step Trainer::graph_step() {
  const models::StepSeed seed = seed_of_next_batch();
  const data::Batch batch = next_batch();
  Step step;
  step.tokens = batch_tokens_;
  step.positions = models::hstu::num_predicted(model_.spec(), batch);
  step.learning_rate = learning_rate_at(config_.optimizer, state_.step, total_steps_);
  if (step.positions == 0) return step;

  const std::vector<int64_t> seeds = models::hstu::all_seeds(seed, model_.spec());
  models::hstu::Windows windows = model_.upload(
      pad_batch(batch, model_.spec()), {.seeds = seeds, .num_positions = {step.positions}});
  round_lengths(windows, model_.spec());
  device_->start(state_.step + 1, step.learning_rate, 1 / static_cast<double>(step.positions));
  graphs_->run(windows, [&](const models::hstu::Windows& where, bool recording) {
    const ops::DeviceSeeds device_seeds(seeds, where.seeds);
    device_->backward(model_.loss(where, seed, where.num_positions).sum);
    update_on_device(recording);
  });
  return step;
}

}  // namespace seqfuse::training
