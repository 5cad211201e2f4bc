// GPT-NeoX from its formulae, in float64, token by token, with a StreamingLLM cache by definition:
// keys are stored unrotated, and all are rotated at their positions in the cache for every token.
#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace seqfuse::oracle {

struct GptNeoxOptions {
  int64_t layers = 0, heads = 0, rotary_dims = 0;
  double rotary_base = 10000, eps = 1e-5;
  bool parallel = true, tanh_gelu = false, tied = false;
  // The cache keeps the first `start` and the newest `recent` tokens; it grows to at most start +
  // recent + prune_every - 1 after a token, then drops to start + recent. recent < 0: everything.
  int64_t start = 0, recent = -1, prune_every = 1;
};

class GptNeox {
 public:
  using Row = std::vector<double>;
  // tensors: by their names in a checkpoint, of any floating dtype.
  GptNeox(const GptNeoxOptions& options, const std::map<std::string, at::Tensor>& tensors)
      : options_(options), cache_(options.layers) {
    for (const auto& [name, tensor] : tensors) weights_[name] = tensor.to(at::kDouble).contiguous();
    // As the framework computes them for training: in float32, step by step.
    const at::Tensor exponents =
        at::arange(0, options.rotary_dims, 2, at::kFloat) / options.rotary_dims;
    frequencies_ = at::pow(options.rotary_base, exponents).reciprocal().to(at::kDouble);
  }

  // The logits after one more token.
  Row next(int64_t id) {
    const at::Tensor& table = weights_.at("gpt_neox.embed_in.weight");
    Row h(table.data_ptr<double>() + id * table.size(1),
          table.data_ptr<double>() + (id + 1) * table.size(1));
    for (int64_t layer = 0; layer < options_.layers; ++layer) {
      const std::string name = "gpt_neox.layers." + std::to_string(layer) + ".";
      const Row attended = attention(layer, norm(h, name + "input_layernorm"));
      Row sum = h;
      add(sum, attended);
      add(sum, mlp(name, norm(options_.parallel ? h : sum, name + "post_attention_layernorm")));
      h = sum;
    }
    h = norm(h, "gpt_neox.final_layer_norm");
    return linear(h, options_.tied ? "gpt_neox.embed_in.weight" : "embed_out.weight", "");
  }

  // -log of the probability of each id but the first.
  Row losses(const std::vector<int64_t>& ids) {
    Row losses;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const Row logits = next(ids[i]);
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      losses.push_back(std::log(sum) - logits[ids[i + 1]]);
    }
    return losses;
  }

 private:
  struct Entry {
    Row key, value;  // [heads * dim], not rotated
  };

  static void add(Row& sum, const Row& x) {
    for (size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
  }

  Row norm(const Row& x, const std::string& name) const {
    const auto n = static_cast<double>(x.size());
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / n;
    for (const double v : x) variance += (v - mean) * (v - mean) / n;
    const double* weight = weights_.at(name + ".weight").data_ptr<double>();
    const double* bias = weights_.at(name + ".bias").data_ptr<double>();
    Row y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] = (x[i] - mean) / std::sqrt(variance + options_.eps) * weight[i] + bias[i];
    }
    return y;
  }

  Row linear(const Row& x, const std::string& weight_name, const std::string& bias_name) const {
    const at::Tensor& weight = weights_.at(weight_name);
    const double* w = weight.data_ptr<double>();
    const auto bias = weights_.find(bias_name);
    Row y(weight.size(0), 0.0);
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
      if (bias != weights_.end()) y[o] += bias->second.data_ptr<double>()[o];
    }
    return y;
  }

  Row mlp(const std::string& layer, const Row& x) const {
    Row inner = linear(x, layer + "mlp.dense_h_to_4h.weight", layer + "mlp.dense_h_to_4h.bias");
    for (double& v : inner) {
      const double cubic = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
      v *= 0.5 * (1 + (options_.tanh_gelu ? std::tanh(cubic) : std::erf(v / std::sqrt(2))));
    }
    return linear(inner, layer + "mlp.dense_4h_to_h.weight", layer + "mlp.dense_4h_to_h.bias");
  }

  // One head's vector at a position.
  Row rotated(const double* x, int64_t dim, int64_t position) const {
    Row y(x, x + dim);
    const int64_t half = options_.rotary_dims / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequencies_.data_ptr<double>()[i];
      y[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
      y[i + half] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
    }
    return y;
  }

  Row attention(int64_t layer, const Row& x) {
    const std::string name = "gpt_neox.layers." + std::to_string(layer) + ".attention.";
    const Row qkv = linear(x, name + "query_key_value.weight", name + "query_key_value.bias");
    const auto size = static_cast<int64_t>(x.size());
    const int64_t dim = size / options_.heads;
    Row query(size);
    Entry entry{Row(size), Row(size)};
    for (int64_t head = 0; head < options_.heads; ++head) {
      for (int64_t d = 0; d < dim; ++d) {
        const int64_t to = head * dim + d, from = head * 3 * dim + d;
        query[to] = qkv[from];
        entry.key[to] = qkv[from + dim];
        entry.value[to] = qkv[from + 2 * dim];
      }
    }
    std::vector<Entry>& cache = cache_[layer];
    cache.push_back(entry);
    Row context(size, 0.0);
    for (int64_t head = 0; head < options_.heads; ++head) {
      const int64_t at = head * dim, keys = static_cast<int64_t>(cache.size());
      const Row q = rotated(&query[at], dim, keys - 1);
      Row weights(keys, 0.0);
      double sum = 0;
      for (int64_t j = 0; j < keys; ++j) {
        const Row k = rotated(&cache[j].key[at], dim, j);
        double score = 0;
        for (int64_t d = 0; d < dim; ++d) score += q[d] * k[d];
        sum += weights[j] = std::exp(score / std::sqrt(static_cast<double>(dim)));
      }
      for (int64_t j = 0; j < keys; ++j) {
        for (int64_t d = 0; d < dim; ++d)
          context[at + d] += weights[j] / sum * cache[j].value[at + d];
      }
    }
    drop(cache);
    return linear(context, name + "dense.weight", name + "dense.bias");
  }

  void drop(std::vector<Entry>& cache) const {
    const int64_t kept = options_.start + options_.recent;
    const auto length = static_cast<int64_t>(cache.size());
    if (options_.recent < 0 || length < kept + options_.prune_every) return;
    cache.erase(cache.begin() + options_.start, cache.begin() + options_.start + length - kept);
  }

  GptNeoxOptions options_;
  std::map<std::string, at::Tensor> weights_;
  at::Tensor frequencies_;  // float64 [rotary_dims / 2]
  std::vector<std::vector<Entry>> cache_;
};

}  // namespace seqfuse::oracle
