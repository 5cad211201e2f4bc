#include "seqfuse/training.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "config/load.h"
#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "distributed/process_group.h"
#include "models/hstu/model_spec.h"
#include "models/hstu/table_placement.h"
#include "models/hstu/task_model.h"
#include "training/device/device.h"
#include "training/loop/batch_stream.h"
#include "training/loop/label_check.h"
#include "training/loop/run_schedule.h"
#include "training/loop/split_options.h"
#include "training/loop/step_runner.h"
#include "training/loop/step_update.h"
#include "training/loop/training_state.h"

namespace seqfuse {
namespace {

config::Task task_of(const std::string& name) {
  if (const auto task = config::find_choice<config::Task>(name)) return *task;
  throw_error<UsageError>("TrainerOptions.task is '{}': it must be 'retrieval' or 'ranking'", name);
}

std::shared_ptr<models::hstu::TaskModel> make_model(const models::hstu::ModelSpec& spec,
                                                    const config::Config& config,
                                                    const std::string& device) {
  const at::Device chosen = training::choose_device(device, "");
  training::set_arithmetic(chosen, config.trainer);
  const embeddings::Placement placement =
      models::hstu::table_placement(config, spec, distributed::ProcessGroup::single(), chosen);
  auto model = models::hstu::make_task_model(spec, static_cast<uint64_t>(config.trainer.seed),
                                             torch::kFloat, placement);
  model->to(chosen);
  model->train();
  return model;
}

}  // namespace

// Members refer to earlier members.
struct Trainer::State {
  explicit State(const TrainerOptions& options)
      : config(config::load_config(options.config_file, options.overrides).config),
        dataset(data::Dataset::open(options.dataset)),
        split(data::make_split(*dataset,
                               training::split_options(config.dataset, task_of(options.task)))),
        model(make_model(
            models::hstu::ModelSpec::make(task_of(options.task), config, dataset->manifest()),
            config, options.device)),
        stream(*dataset, split.train, config.trainer, config.dataset.shuffle),
        schedule(config.trainer, stream.batches_per_epoch()),
        update(*model, config, group),
        runner(*model, config, stream, update, group) {
    if (const std::string warning = training::check_training_labels(*dataset, split, model->spec());
        !warning.empty()) {
      log::warning("train", "{}", warning);
    }
    schedule.count_steps({});
    update.optimizer().start_averages(/*saved=*/false);
  }

  const config::Config config;
  const std::shared_ptr<const data::Dataset> dataset;
  const data::Split split;
  const std::shared_ptr<models::hstu::TaskModel> model;
  distributed::ProcessGroup group;
  training::BatchStream stream;
  training::RunSchedule schedule;
  training::StepUpdate update;
  training::StepRunner runner;
  int64_t steps = 0;
};

Trainer::Trainer(const TrainerOptions& options) : state_(std::make_unique<State>(options)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

StepResult Trainer::step() {
  training::Step step = state_->runner.run(
      state_->steps, state_->schedule.total_steps(), [] { return 0; }, [](const data::Batch&) {});
  state_->update.read_losses(step);
  ++state_->steps;
  return {.step = state_->steps,
          .loss = step.losses_read > 0 ? step.loss_sum / static_cast<double>(step.losses_read) : 0,
          .positions = step.positions,
          .tokens = step.tokens,
          .learning_rate = step.learning_rate};
}

int64_t Trainer::steps() const {
  return state_->steps;
}

int64_t Trainer::total_steps() const {
  return state_->schedule.total_steps();
}

std::vector<std::pair<std::string, at::Tensor>> Trainer::weights() const {
  std::vector<std::pair<std::string, at::Tensor>> weights;
  for (const auto& weight : state_->model->named_parameters()) {
    weights.emplace_back(weight.key(), weight.value().detach());
  }
  return weights;
}

}  // namespace seqfuse
