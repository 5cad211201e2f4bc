#include "training/loop/step_runner.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/log.h"
#include "ops/torch/device_seeds.h"
#include "training/loop/batch_padding.h"
#include "training/loop/next_rows.h"
#include "training/loop/not_finite.h"
#include "training/optimizer/schedule.h"

namespace seqfuse::training {
namespace {

using models::hstu::Windows;

// Why GPU steps cannot be graphs; empty if they can.
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
    if (!table->weight().defined()) {
      return fmt::format("table '{}' gives new ids a row, and grows", table->name());
    }
    if (table->is_sharded() || table->num_rows() >= embeddings::kSparseTableRows) {
      return fmt::format("the number of rows of table '{}' that a step has is read back: it has {}",
                         table->name(), table->num_rows());
    }
  }
  return "";
}

}  // namespace

StepRunner::StepRunner(models::hstu::TaskModel& model, const config::Config& config,
                       BatchStream& stream, StepUpdate& update, distributed::ProcessGroup& group)
    : model_(model),
      config_(config),
      stream_(stream),
      update_(update),
      group_(group),
      exchange_(group, model),
      sends_ahead_(config.trainer.pipeline_type == config::Pipeline::prefetch) {}

void StepRunner::start_graphs() {
  if (!config_.trainer.cuda_graph || !update_.on_gpu()) return;
  const std::string why_not = why_no_graphs(config_, model_.spec(), model_.tables(), group_);
  if (!why_not.empty()) {
    log::info("train", "TrainerArgs.cuda_graph has no effect: {}", why_not);
    return;
  }
  graphs_.emplace(model_.device());
  log::info("train", "steps are CUDA graphs, of batches padded to few sizes");
}

Step StepRunner::run(int64_t done, int64_t total, const std::function<int()>& signal,
                     const std::function<void(const data::Batch&)>& on_batch) {
  update_.optimizer().zero_gradients();
  Step step;
  step.learning_rate = learning_rate_at(config_.optimizer, done, total);
  if (graphs_) {
    run_graph(done + 1, on_batch, step);
    return step;
  }
  StepExchange::Totals totals;
  const int64_t batches = config_.trainer.gradient_accumulation_steps;
  for (int64_t i = 0; i < batches; ++i) {
    const models::StepSeed seed = seed_of_next_batch();
    const int64_t position = stream_.position();
    const data::Batch batch = next_batch(on_batch);
    if (i + 1 == batches) exchange_.start();
    const bool more = sends_ahead_ && (i + 1 < batches || done + 1 < total);
    Windows windows;
    if (batch_users_ > 0) windows = upload(batch, position);
    if (more) send_next_batch();
    if (batch_users_ == 0) {  // the end of an epoch with fewer users than processes
      embeddings::fetch_nothing(model_.tables());
      if (more) prefetch_rows(model_.tables(), next_windows());
      continue;
    }
    const models::hstu::TaskModel::Loss loss = model_.loss(windows, seed);
    // Before backward, so that all processes exchange ids, and then gradients, in the same order.
    if (more) prefetch_rows(model_.tables(), next_windows());
    totals.tokens += batch_tokens_;
    if (loss.positions == 0) continue;
    totals.positions += loss.positions;
    totals.loss_sum += update_.backward(loss.sum);
  }
  totals.signal = signal();
  totals = exchange_.finish(totals);
  step.signal = totals.signal;
  step.positions = totals.positions;
  step.tokens = totals.tokens;
  if (!update_.on_gpu()) {
    // Check the sum over all processes, so that all stop at the same step.
    if (!std::isfinite(totals.loss_sum)) throw NotFinite("loss", totals.loss_sum, done + 1);
    step.loss_sum = totals.loss_sum;
    step.losses_read = step.positions;
  }
  if (step.positions > 0) update_.update(done + 1, step);
  return step;
}

void StepRunner::run_graph(int64_t number, const std::function<void(const data::Batch&)>& on_batch,
                           Step& step) {
  const models::StepSeed seed = seed_of_next_batch();
  const data::Batch batch = next_batch(on_batch);
  step.tokens = batch_tokens_;
  step.positions = models::hstu::num_predicted(model_.spec(), batch);
  if (step.positions == 0) return;

  const std::vector<int64_t> seeds = models::hstu::all_seeds(seed, model_.spec());
  Windows windows = model_.upload(pad_batch(batch, model_.spec()),
                                  {.seeds = seeds, .num_positions = {step.positions}});
  round_lengths(windows, model_.spec());
  update_.start_on_gpu(number, step);
  graphs_->run(windows, [&](const Windows& where, bool recording) {
    const ops::DeviceSeeds device_seeds(seeds, where.seeds);
    update_.backward(model_.loss(where, seed, where.num_positions).sum);
    update_.update_on_gpu(recording);
  });
}

models::StepSeed StepRunner::seed_of_next_batch() const {
  return {static_cast<uint64_t>(config_.trainer.seed), stream_.position(), group_.rank()};
}

data::Batch StepRunner::next_batch(const std::function<void(const data::Batch&)>& on_batch) {
  batch_users_ = 0;
  data::Batch batch = stream_.next();
  batch_users_ = batch.batch_size();
  batch_tokens_ = models::hstu::num_tokens(model_.spec(), batch);
  on_batch(batch);
  return batch;
}

Windows StepRunner::upload(const data::Batch& batch, int64_t position) {
  if (const auto sent = std::exchange(next_, std::nullopt); sent && sent->position == position) {
    return sent->windows;
  }
  return model_.upload(batch);
}

void StepRunner::send_next_batch() {
  next_.reset();
  const data::Batch* next = stream_.peek();
  if (next == nullptr || next->batch_size() == 0) return;
  next_ = {.position = stream_.position(), .windows = model_.upload(*next)};
}

std::string StepRunner::batch_text() const {
  if (batch_users_ == 0) return "";
  return fmt::format(" (batch of {} users, {} tokens)", batch_users_, batch_tokens_);
}

}  // namespace seqfuse::training
