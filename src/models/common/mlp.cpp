#include "models/common/mlp.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

namespace seqfuse::models {

torch::nn::Sequential make_mlp(int64_t in, const std::vector<int64_t>& widths,
                               config::Activation activation, bool bias, Initializer& init) {
  torch::nn::Sequential layers;
  for (size_t i = 0; i < widths.size(); ++i) {
    torch::nn::Linear linear(torch::nn::LinearOptions(in, widths[i]).bias(bias));
    linear->weight.set_data(init.xavier_uniform(in, widths[i]).t().contiguous());
    if (bias) linear->bias.set_data(init.zeros(widths[i]));
    layers->push_back(linear);
    in = widths[i];
    if (i + 1 == widths.size()) break;
    switch (activation) {
      case config::Activation::relu:
        layers->push_back(torch::nn::ReLU());
        break;
      case config::Activation::gelu:
        layers->push_back(torch::nn::GELU());
        break;
    }
  }
  return layers;
}

}  // namespace seqfuse::models
