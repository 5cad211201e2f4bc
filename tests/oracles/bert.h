// BERT from its formulae, in float64, one sequence alone, with loops.
#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace seqfuse::oracle {

class Bert {
 public:
  using Row = std::vector<double>;
  using Matrix = std::vector<Row>;

  // tensors: by their names in a checkpoint, without "bert.", of any floating dtype.
  Bert(int64_t layers, int64_t heads, double eps, std::string hidden_act,
       const std::map<std::string, at::Tensor>& tensors)
      : layers_(layers), heads_(heads), eps_(eps), hidden_act_(std::move(hidden_act)) {
    for (const auto& [name, tensor] : tensors) weights_[name] = tensor.to(at::kDouble).contiguous();
  }

  // float64 [n, H]. sees(q, k): whether query q sees key k.
  at::Tensor states(const std::vector<int64_t>& ids, const std::vector<int64_t>& types,
                    const std::function<bool(int64_t, int64_t)>& sees) const {
    Matrix h;
    for (size_t i = 0; i < ids.size(); ++i) {
      Row row = table_row("embeddings.word_embeddings.weight", ids[i]);
      add(row, table_row("embeddings.token_type_embeddings.weight", types[i]));
      add(row, table_row("embeddings.position_embeddings.weight", static_cast<int64_t>(i)));
      h.push_back(norm(row, "embeddings.LayerNorm"));
    }
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const std::string name = "encoder.layer." + std::to_string(layer) + ".";
      const Matrix context = attention(h, name + "attention.self.", sees);
      for (size_t i = 0; i < h.size(); ++i) {
        Row a = linear(context[i], name + "attention.output.dense");
        add(a, h[i]);
        a = norm(a, name + "attention.output.LayerNorm");
        Row inner = linear(a, name + "intermediate.dense");
        for (double& v : inner) v = activation(v);
        Row out = linear(inner, name + "output.dense");
        add(out, a);
        h[i] = norm(out, name + "output.LayerNorm");
      }
    }
    at::Tensor result =
        at::empty({static_cast<int64_t>(h.size()), static_cast<int64_t>(h[0].size())}, at::kDouble);
    for (size_t i = 0; i < h.size(); ++i) {
      std::copy(h[i].begin(), h[i].end(), result[static_cast<int64_t>(i)].data_ptr<double>());
    }
    return result;
  }

 private:
  static void add(Row& sum, const Row& x) {
    for (size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
  }

  Row table_row(const std::string& name, int64_t index) const {
    const at::Tensor row = weights_.at(name)[index];
    return {row.data_ptr<double>(), row.data_ptr<double>() + row.numel()};
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
      y[i] = (x[i] - mean) / std::sqrt(variance + eps_) * weight[i] + bias[i];
    }
    return y;
  }

  Row linear(const Row& x, const std::string& name) const {
    const at::Tensor& weight = weights_.at(name + ".weight");
    const double* w = weight.data_ptr<double>();
    const double* bias = weights_.at(name + ".bias").data_ptr<double>();
    Row y(static_cast<size_t>(weight.size(0)));
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = bias[i];
      for (size_t k = 0; k < x.size(); ++k) y[i] += w[i * x.size() + k] * x[k];
    }
    return y;
  }

  Matrix attention(const Matrix& h, const std::string& name,
                   const std::function<bool(int64_t, int64_t)>& sees) const {
    Matrix q, k, v;
    for (const Row& row : h) {
      q.push_back(linear(row, name + "query"));
      k.push_back(linear(row, name + "key"));
      v.push_back(linear(row, name + "value"));
    }
    const size_t n = h.size(), width = h[0].size(), d = width / static_cast<size_t>(heads_);
    Matrix context(n, Row(width, 0));
    for (size_t head = 0; head < width; head += d) {
      for (size_t i = 0; i < n; ++i) {
        Row weights(n, 0);
        double sum = 0;
        for (size_t j = 0; j < n; ++j) {
          if (!sees(static_cast<int64_t>(i), static_cast<int64_t>(j))) continue;
          double score = 0;
          for (size_t c = head; c < head + d; ++c) score += q[i][c] * k[j][c];
          weights[j] = std::exp(score / std::sqrt(static_cast<double>(d)));
          sum += weights[j];
        }
        for (size_t j = 0; j < n; ++j) {
          if (weights[j] == 0) continue;
          for (size_t c = head; c < head + d; ++c) context[i][c] += weights[j] / sum * v[j][c];
        }
      }
    }
    return context;
  }

  double activation(double x) const {
    if (hidden_act_ == "relu") return x > 0 ? x : 0;
    if (hidden_act_ == "gelu") return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }

  int64_t layers_, heads_;
  double eps_;
  std::string hidden_act_;
  std::map<std::string, at::Tensor> weights_;
};

}  // namespace seqfuse::oracle
