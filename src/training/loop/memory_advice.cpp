#include "training/loop/memory_advice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "embeddings/update/update_step.h"

namespace seqfuse::training {
namespace {

int64_t half(int64_t value) {
  return std::max<int64_t>(value / 2, 1);
}

}  // namespace

std::string how_to_make_steps_smaller(const config::Config& config, models::hstu::Task task,
                                      at::Device device) {
  const config::TrainerArgs& trainer = config.trainer;
  std::string text;
  if (const int64_t users = trainer.train_batch_size; users > 1) {
    text += fmt::format(
        "\n  smaller batches, accumulated: --resume --gin "
        "TrainerArgs.train_batch_size={} --gin TrainerArgs.gradient_accumulation_steps={}",
        half(users), 2 * trainer.gradient_accumulation_steps);
  }
  std::vector<std::string> others = {
      fmt::format("DatasetArgs.max_history_seqlen (now {})", config.dataset.max_history_seqlen)};
  if (task == models::hstu::Task::retrieval &&
      config.retrieval.negatives != config::Negatives::full) {
    const int64_t negatives = config.retrieval.num_negatives;
    others.push_back(fmt::format("RetrievalArgs.num_negatives (now {})",
                                 negatives > 0 ? std::to_string(negatives) : "one a position"));
  }
  others.push_back(fmt::format("NetworkArgs.num_layers (now {}) and hidden_size (now {})",
                               config.network.num_layers, config.network.hidden_size));
  text += fmt::format("\n  less memory in a new run: smaller {}", fmt::join(others, ", "));
  if (device.is_cuda() && config.network.dtype_str == config::ComputeType::float32) {
    text += ", or NetworkArgs.dtype_str = 'bfloat16'";
  }
  if (device.is_cuda() && trainer.cuda_graph) {
    text += "\n  graphs keep memory: --resume --gin TrainerArgs.cuda_graph=False";
  }
  return text;
}

std::string how_to_make_evaluations_smaller(const config::TrainerArgs& args) {
  return fmt::format("\n  smaller batches: --resume --gin TrainerArgs.eval_batch_size={}",
                     half(args.eval_batch_size));
}

std::string how_to_make_models_smaller(const config::Config& config) {
  const config::OptimizerKind optimizer = embeddings::optimizer_of_tables(config.optimizer);
  const bool adam =
      optimizer == config::OptimizerKind::adam || optimizer == config::OptimizerKind::adamw;
  return fmt::format(
      "\n  smaller tables: NetworkArgs.item_embedding_dim (now {}){}\n"
      "  a smaller network: NetworkArgs.num_layers (now {}), hidden_size (now {})",
      config.network.item_embedding_dim > 0 ? config.network.item_embedding_dim
                                            : config.network.hidden_size,
      adam ? ", or OptimizerArgs.embedding_optimizer_str = 'row_wise_adagrad', whose state is one "
             "number a row"
           : "",
      config.network.num_layers, config.network.hidden_size);
}

}  // namespace seqfuse::training
