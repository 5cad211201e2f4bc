#include "training/loop/out_of_memory.h"

#include <algorithm>
#include <charconv>
#include <new>
#include <string_view>
#include <vector>

#ifdef SEQFUSE_HAS_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif
#include <fmt/ranges.h>

#include "base/file.h"
#include "base/progress.h"

namespace seqfuse::training {
namespace {

// Messages of libraries that throw no specific exception for it.
constexpr std::string_view kSigns[] = {"can't allocate memory", "CUDA error: out of memory",
                                       "CUBLAS_STATUS_ALLOC_FAILED"};

// The first number after a word in a text; 0 if there is none.
double number_after(std::string_view text, std::string_view word) {
  const size_t at = text.find(word);
  if (at == std::string_view::npos) return 0;
  text.remove_prefix(std::min(text.find_first_of("0123456789", at + word.size()), text.size()));
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return static_cast<double>(number);
}

std::string host_memory() {
  const std::string info = read_file("/proc/meminfo");  // in KiB
  return fmt::format("{}B of this machine's {}B are free",
                     format_count(1024 * number_after(info, "MemAvailable:")),
                     format_count(1024 * number_after(info, "MemTotal:")));
}

int64_t half(int64_t value) {
  return std::max<int64_t>(value / 2, 1);
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return true;
  }
  const std::string_view text = error.what();
  return std::any_of(std::begin(kSigns), std::end(kSigns), [&](std::string_view sign) {
    return text.find(sign) != std::string_view::npos;
  });
}

std::string message_of(const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = from_torch != nullptr ? from_torch->what_without_backtrace() : error.what();
  if (!is_out_of_memory(error)) return text;
  // Drop torch's advice on its allocator in favour of ours.
  text = text.substr(0, text.find(" If reserved but unallocated"));
  constexpr std::string_view kHost = "you tried to allocate ";
  if (text.find(kHost) != std::string::npos) {
    return fmt::format("tried to allocate {}B; {}", format_count(number_after(text, kHost)),
                       host_memory());
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return host_memory();
  return text;
}

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
  const bool adam = config.optimizer.embedding_optimizer_str.empty()
                        ? config.optimizer.optimizer_str.starts_with("adam")
                        : config.optimizer.embedding_optimizer_str.starts_with("adam");
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

void release_cached_memory([[maybe_unused]] at::Device device) {
#ifdef SEQFUSE_HAS_CUDA
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
#endif
}

}  // namespace seqfuse::training
