#include "training/checkpoint/weights.h"

#include <sstream>
#include <string>

#include "base/error.h"

namespace seqfuse::training {
namespace {

std::string shape_text(const torch::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

}  // namespace

TensorMap named_weights(const torch::nn::Module& module) {
  TensorMap weights;
  for (const auto& entry : module.named_parameters()) weights[entry.key()] = entry.value();
  for (const auto& entry : module.named_buffers()) weights[entry.key()] = entry.value();
  return weights;
}

void collect_weights(const torch::nn::Module& module, Checkpoint& checkpoint) {
  for (const auto& [name, weight] : named_weights(module)) {
    if (name.starts_with(kTablePrefix)) {
      checkpoint.tables[name.substr(kTablePrefix.size())] = weight.detach();
    } else {
      checkpoint.dense[name] = weight.detach();
    }
  }
}

void load_weights(torch::nn::Module& module, const Checkpoint& checkpoint) {
  const torch::NoGradGuard no_grad;
  TensorMap given = checkpoint.dense;
  for (const auto& [name, table] : checkpoint.tables)
    given[std::string(kTablePrefix) + name] = table;
  const TensorMap expected = named_weights(module);
  for (const auto& [name, weight] : expected) {
    const auto found = given.find(name);
    if (found == given.end()) {
      throw_error<DataError>(
          "the checkpoint has no weight {} {}: it is of another architecture or size", name,
          shape_text(weight));
    }
    if (found->second.sizes() != weight.sizes()) {
      throw_error<DataError>(
          "the checkpoint's {} is {}, the model's is {}: it is of another architecture or "
          "vocabulary",
          name, shape_text(found->second), shape_text(weight));
    }
  }
  for (const auto& [name, tensor] : given) {
    if (!expected.contains(name)) {
      throw_error<DataError>(
          "the checkpoint's weight {} {} is not in the model: it is of another architecture", name,
          shape_text(tensor));
    }
  }
  for (const auto& [name, weight] : expected) torch::Tensor(weight).copy_(given.at(name));
}

}  // namespace seqfuse::training
