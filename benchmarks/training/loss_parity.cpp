// Writes one training batch in float64 with everything that another implementation needs to repeat
// it: weights, batch, negatives, and our loss per position and gradients. compare_with_torch.py
// repeats it in plain PyTorch.
//
// usage: loss_parity DATASET GIN_FILE OUTPUT.safetensors
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "config/load.h"
#include "data/batch/batch.h"
#include "models/files/tensor_map.h"
#include "models/hstu/retrieval_model.h"
#include "ops/torch/ops.h"
#include "training/loop/split_options.h"

namespace seqfuse {
namespace {

constexpr int64_t kBatchSize = 32;
constexpr uint64_t kSeed = 7;

void write_parity(const char* dataset_directory, const char* gin_file, const char* output) {
  const auto dataset = data::Dataset::open(dataset_directory);
  const auto loaded = config::load_config(gin_file, {"NetworkArgs.hidden_dropout = 0.0"});
  const auto spec = models::hstu::ModelSpec::make(models::hstu::Task::retrieval, loaded.config,
                                                  dataset->manifest());
  const auto split = data::make_split(
      *dataset, training::split_options(loaded.config.dataset, models::hstu::Task::retrieval));
  data::BatchLoader loader(*dataset, split.train, {.batch_size = kBatchSize, .seed = kSeed}, 0);
  const data::Batch batch = loader.next().value();

  const auto model = models::hstu::make_retrieval_model(spec, kSeed, torch::kDouble);
  const at::Tensor negatives = ops::sample_uniform(torch::arange(1, spec.num_items + 1),
                                                   batch.num_events() - batch.batch_size(),
                                                   spec.retrieval.num_negatives, kSeed);
  const at::Tensor losses = model->losses(batch, {}, negatives);
  losses.mean().backward();

  models::TensorMap tensors{{"offsets", torch::tensor(batch.offsets)},
                            {"items", torch::tensor(batch.items)},
                            {"timestamps", torch::tensor(batch.timestamps)},
                            {"negatives", negatives},
                            {"losses", losses.detach()}};
  for (const auto& parameter : model->named_parameters()) {
    tensors["weight." + parameter.key()] = parameter.value().detach();
    const at::Tensor gradient = parameter.value().grad();
    if (gradient.defined()) {
      tensors["gradient." + parameter.key()] =
          gradient.is_sparse() ? gradient.to_dense() : gradient;
    }
  }
  models::save_tensors(output, tensors);
  fmt::print("mean loss {:.12f} over {} positions\n", losses.mean().item<double>(), losses.numel());
}

}  // namespace
}  // namespace seqfuse

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: loss_parity DATASET GIN_FILE OUTPUT.safetensors\n");
    return 2;
  }
  try {
    seqfuse::write_parity(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "loss_parity: {}\n", error.what());
    return 1;
  }
}
