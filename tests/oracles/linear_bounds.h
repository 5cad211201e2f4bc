// IBP, CROWN-BaF and CROWN of an encoder classifier from their definitions: one number at a time, in float64,
// with lines below and above kept apart and chosen by the sign of each coefficient.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace seqfuse::oracle {

class LinearBounds {
 public:
  enum class Method { ibp, crown_baf, crown };
  struct Model {
    int64_t layers = 1, heads = 1;
    double eps = 1e-12;
    std::string hidden_act = "relu";
    bool division = false;
    std::map<std::string, at::Tensor> tensors;  // by name, without "bert."
  };

  // norm: 1, 2, or 0 for the largest absolute value. radius: of each position.
  LinearBounds(const Model& model, Method method, const std::vector<int64_t>& ids,
               std::vector<int64_t> positions, int norm, double radius)
      : model_(model),
        method_(method),
        positions_(std::move(positions)),
        norm_(norm),
        radius_(radius) {
    for (const auto& [name, tensor] : model.tensors)
      weights_[name] = tensor.to(at::kDouble).contiguous();
    run(ids);
  }

  // A lower bound of output[label] - output[other].
  double margin(int64_t label, int64_t other) const {
    const at::Tensor& w = weights_.at("classifier.weight");
    const at::Tensor& b = weights_.at("classifier.bias");
    std::map<size_t, double> slopes;
    double constant = (b[label] - b[other]).item<double>(), by_intervals = constant;
    for (size_t i = 0; i < pooled_.size(); ++i) {
      const double slope =
          (w[label][static_cast<int64_t>(i)] - w[other][static_cast<int64_t>(i)]).item<double>();
      slopes[pooled_[i]] += slope;
      const Var& x = vars_[pooled_[i]];
      by_intervals += slope * (slope > 0 ? x.lo : x.hi);
    }
    return method_ == Method::ibp ? by_intervals
                                  : std::max(by_intervals, backward(slopes, constant));
  }

 private:
  struct Edge {
    size_t from;
    double lower, upper;  // slopes
  };
  struct Line {
    std::vector<double> slopes;  // of the perturbed coordinates
    double constant = 0;
  };
  struct Var {
    double lo = 0, hi = 0;
    std::vector<Edge> edges;
    double lower = 0, upper = 0;  // constants
    int64_t coordinate = -1;      // of a perturbed input
    Line below, above;            // CROWN-BaF
  };
  using Row = std::vector<size_t>;
  using Matrix = std::vector<Row>;

  // The largest change over all perturbed coordinates; each position has its own ball.
  double reach(const std::vector<double>& slopes) const {
    const size_t width = slopes.size() / positions_.size();
    double total = 0;
    for (size_t p = 0; p < positions_.size(); ++p) {
      double dual = 0;
      for (size_t i = p * width; i < (p + 1) * width; ++i) {
        const double a = std::abs(slopes[i]);
        dual = norm_ == 1 ? std::max(dual, a) : dual + (norm_ == 2 ? a * a : a);
      }
      total += norm_ == 2 ? std::sqrt(dual) : dual;
    }
    return total * radius_;
  }

  // A lower bound of the sum of slopes times variables plus a constant.
  double backward(std::map<size_t, double> slopes, double constant) const {
    std::vector<double> at_input(coordinates_, 0);
    while (!slopes.empty()) {
      const auto last = std::prev(slopes.end());
      const auto [index, slope] = *last;
      slopes.erase(last);
      const Var& x = vars_[index];
      if (x.coordinate >= 0) at_input[static_cast<size_t>(x.coordinate)] += slope;
      constant += slope * (slope > 0 ? x.lower : x.upper);
      for (const Edge& edge : x.edges)
        slopes[edge.from] += slope * (slope > 0 ? edge.lower : edge.upper);
    }
    return constant - reach(at_input);
  }

  Line forward(const Var& x, bool below) const {
    Line line{std::vector<double>(coordinates_, 0), below ? x.lower : x.upper};
    if (x.coordinate >= 0) line.slopes[static_cast<size_t>(x.coordinate)] = 1;
    for (const Edge& edge : x.edges) {
      const double slope = below ? edge.lower : edge.upper;
      const Line& from = (slope > 0) == below ? vars_[edge.from].below : vars_[edge.from].above;
      for (size_t i = 0; i < coordinates_; ++i) line.slopes[i] += slope * from.slopes[i];
      line.constant += slope * from.constant;
    }
    return line;
  }

  // tighten: whether this method looks at the variable backwards.
  size_t add(Var x, bool tighten) {
    const size_t index = vars_.size();
    if (method_ == Method::crown_baf) {
      x.below = forward(x, true);
      x.above = forward(x, false);
      x.lo = std::max(x.lo, x.below.constant - reach(x.below.slopes));
      x.hi = std::min(x.hi, x.above.constant + reach(x.above.slopes));
    }
    vars_.push_back(std::move(x));
    if (method_ == Method::crown && tighten) {
      Var& added = vars_.back();
      const double lo = backward({{index, 1.0}}, 0), hi = -backward({{index, -1.0}}, 0);
      added.lo = std::max(added.lo, lo);
      added.hi = std::min(added.hi, hi);
    }
    return index;
  }

  // slopes · x + constant, with slopes [from.size()]. Of inputs exact for the norm. tighten: what is not linear
  // reads it.
  size_t combination(const Row& from, const std::function<double(size_t)>& slope, double constant,
                     bool tighten, bool of_inputs = false, double at_least = -1e300) {
    Var y{.lo = constant, .hi = constant, .lower = constant, .upper = constant};
    std::vector<double> at_input(coordinates_, 0);
    for (size_t i = 0; i < from.size(); ++i) {
      const double a = slope(i);
      const Var& x = vars_[from[i]];
      y.edges.push_back({from[i], a, a});
      if (of_inputs) {
        y.lo += a * x.lower;
        y.hi += a * x.lower;
        if (x.coordinate >= 0) at_input[static_cast<size_t>(x.coordinate)] = a;
      } else {
        y.lo += a * (a > 0 ? x.lo : x.hi);
        y.hi += a * (a > 0 ? x.hi : x.lo);
      }
    }
    if (of_inputs) {
      y.lo -= reach(at_input);
      y.hi += reach(at_input);
    }
    y.lo = std::max(y.lo, at_least);
    return add(std::move(y), tighten && !of_inputs);
  }

  Row linear(const Row& from, const std::string& name, bool tighten) {
    const at::Tensor &w = weights_.at(name + ".weight"), &b = weights_.at(name + ".bias");
    Row y;
    for (int64_t o = 0; o < w.size(0); ++o) {
      const double* row = w.data_ptr<double>() + o * w.size(1);
      y.push_back(
          combination(from, [&](size_t i) { return row[i]; }, b[o].item<double>(), tighten));
    }
    return y;
  }

  static double mid(const Var& x) { return (x.lo + x.hi) / 2; }
  static double rad(const Var& x) { return (x.hi - x.lo) / 2; }

  // The sum of x[i] y[i] times scale. Its interval: of middles and half widths, of the whole sum.
  size_t scalar_product(const Row& x, const Row& y, double scale, bool tighten) {
    Var z;
    std::map<size_t, double> slopes;
    double center = 0, around = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const Var &a = vars_[x[i]], &b = vars_[y[i]];
      slopes[x[i]] += scale * mid(b);
      slopes[y[i]] += scale * mid(a);
      z.lower -= scale * (mid(a) * mid(b) + rad(a) * rad(b));
      z.upper -= scale * (mid(a) * mid(b) - rad(a) * rad(b));
      center += scale * mid(a) * mid(b);
      around += scale * (std::abs(mid(a)) * rad(b) + rad(a) * (std::abs(mid(b)) + rad(b)));
    }
    for (const auto& [from, slope] : slopes) z.edges.push_back({from, slope, slope});
    z.lo = center - around;
    z.hi = center + around;
    return add(std::move(z), tighten);
  }

  // x y + constant, within [lo, hi] as well.
  size_t product(size_t x, size_t y, double constant, double lo, double hi) {
    const Var &a = vars_[x], &b = vars_[y];
    const double center = mid(a) * mid(b), around = rad(a) * rad(b);
    const double ends[] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    Var z{.lo = std::max(*std::min_element(ends, ends + 4), lo) + constant,
          .hi = std::min(*std::max_element(ends, ends + 4), hi) + constant,
          .edges = {{x, mid(b), mid(b)}, {y, mid(a), mid(a)}},
          .lower = -center - around + constant,
          .upper = -center + around + constant};
    const bool softmax = lo == 0;
    if (softmax) {
      z.lo = constant_lo_;
      z.hi = constant_hi_;
    }
    if (rad(z) < around) {  // the interval is better than the lines
      z.edges.clear();
      z.lower = z.lo;
      z.upper = z.hi;
    }
    return add(std::move(z), softmax);
  }

  // f between two lines: with the slopes given, by their best offsets at 4,001 points.
  size_t function(size_t from, const std::function<double(double)>& f,
                  const std::vector<double>& lower_slopes,
                  const std::vector<double>& upper_slopes) {
    const Var x = vars_[from];
    const int pieces = 4000;
    Var y{.lo = 1e300, .hi = -1e300};
    std::vector<double> points, values;
    for (int i = 0; i <= pieces; ++i) {
      points.push_back(x.lo + (x.hi - x.lo) * i / pieces);
      values.push_back(f(points.back()));
      y.lo = std::min(y.lo, values.back());
      y.hi = std::max(y.hi, values.back());
    }
    const auto best = [&](const std::vector<double>& slopes, double sign) {
      double best_slope = 0, best_offset = 0, best_value = -1e300;
      for (const double slope : slopes) {
        double offset = 1e300;
        for (size_t i = 0; i < points.size(); ++i) {
          offset = std::min(offset, sign * (values[i] - slope * points[i]));
        }
        const double value = sign * slope * mid(x) + offset;
        if (value <= best_value) continue;
        best_value = value;
        best_slope = slope;
        best_offset = sign * offset;
      }
      return std::pair(best_slope, best_offset);
    };
    const auto [lower_slope, lower] = best(lower_slopes, 1);
    const auto [upper_slope, upper] = best(upper_slopes, -1);
    y.edges = {{from, lower_slope, upper_slope}};
    y.lower = lower;
    y.upper = upper;
    return add(std::move(y), false);
  }

  static double derivative(const std::function<double(double)>& f, double x) {
    return (f(x + 1e-6) - f(x - 1e-6)) / 2e-6;
  }

  size_t convex(size_t from, const std::function<double(double)>& f, double touch) {
    const Var& x = vars_[from];
    const double chord =
        x.hi - x.lo < 1e-9 ? derivative(f, touch) : (f(x.hi) - f(x.lo)) / (x.hi - x.lo);
    return function(from, f, {derivative(f, touch)}, {chord});
  }

  // tanh, gelu: the tangent in the middle, and the lines of the hull through an end.
  size_t smooth(size_t from, const std::function<double(double)>& f) {
    const Var& x = vars_[from];
    std::vector<double> lower{derivative(f, mid(x))}, upper = lower;
    if (x.hi - x.lo > 1e-9) {
      double most_end = -1e300, least_end = 1e300, most_start = -1e300, least_start = 1e300;
      for (int i = 0; i < 1000; ++i) {
        const double p = x.lo + (x.hi - x.lo) * i / 1000, q = x.hi - (x.hi - x.lo) * i / 1000;
        const double end = (f(x.hi) - f(p)) / (x.hi - p), start = (f(q) - f(x.lo)) / (q - x.lo);
        most_end = std::max(most_end, end);
        least_end = std::min(least_end, end);
        most_start = std::max(most_start, start);
        least_start = std::min(least_start, start);
      }
      lower.insert(lower.end(), {most_end, least_start});
      upper.insert(upper.end(), {least_end, most_start});
    }
    return function(from, f, lower, upper);
  }

  size_t activation(size_t from) {
    if (model_.hidden_act == "gelu") {
      return smooth(from, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
    }
    const Var& x = vars_[from];
    const double chord = x.lo >= 0 ? 1 : x.hi <= 0 ? 0 : x.hi / (x.hi - x.lo);
    const double below = x.lo >= 0 ? 1 : x.hi <= 0 ? 0 : x.hi > -x.lo ? 1 : 0;
    return function(from, [](double v) { return std::max(v, 0.0); }, {below}, {chord});
  }

  Row norm(const Row& from, const std::string& name, bool of_inputs) {
    const double n = static_cast<double>(from.size());
    const at::Tensor &w = weights_.at(name + ".weight"), &b = weights_.at(name + ".bias");
    const auto centered = [&](size_t o, double weight, double bias) {
      return combination(
          from, [&](size_t i) { return weight * ((i == o ? 1.0 : 0.0) - 1 / n); }, bias,
          model_.division, of_inputs);
    };
    Row y;
    if (!model_.division) {
      for (size_t o = 0; o < from.size(); ++o) {
        const auto at = static_cast<int64_t>(o);
        y.push_back(centered(o, w[at].item<double>(), b[at].item<double>()));
      }
      return y;
    }
    Row squares;
    for (size_t o = 0; o < from.size(); ++o) {
      const size_t c = centered(o, 1, 0);
      const double middle = mid(vars_[c]);
      squares.push_back(convex(c, [](double x) { return x * x; }, middle));
      Var& square = vars_[squares.back()];
      square.lo = std::max(square.lo, 0.0);
    }
    const size_t variance =
        combination(squares, [&](size_t) { return 1 / n; }, model_.eps, true, false, model_.eps);
    const size_t inverse =
        convex(variance, [](double x) { return 1 / std::sqrt(x); }, mid(vars_[variance]));
    for (size_t o = 0; o < from.size(); ++o) {
      const auto at = static_cast<int64_t>(o);
      const double weight = w[at].item<double>(), limit = std::abs(weight) * std::sqrt(n - 1);
      y.push_back(product(centered(o, weight, 0), inverse, b[at].item<double>(), -limit, limit));
    }
    return y;
  }

  Row sum(const Row& x, const Row& y) {
    Row z;
    for (size_t i = 0; i < x.size(); ++i) {
      z.push_back(combination({x[i], y[i]}, [](size_t) { return 1.0; }, 0, false));
    }
    return z;
  }

  Row softmax(const Row& scores) {
    double shift = -1e300;
    for (const size_t s : scores) shift = std::max(shift, vars_[s].lo);
    Row powers;
    for (const size_t s : scores) {
      const double touch = std::min(mid(vars_[s]), vars_[s].lo + 0.99);
      powers.push_back(convex(s, [&](double x) { return std::exp(x - shift); }, touch));
    }
    const size_t total = combination(powers, [](size_t) { return 1.0; }, 0, true);
    const size_t inverse = convex(total, [](double x) { return 1 / x; }, mid(vars_[total]));
    Row result;
    for (size_t i = 0; i < scores.size(); ++i) {
      double least = 0, most = 0;  // of the others, divided by this one
      for (size_t j = 0; j < scores.size(); ++j) {
        if (j == i) continue;
        least += std::exp(vars_[scores[j]].lo - vars_[scores[i]].hi);
        most += std::exp(vars_[scores[j]].hi - vars_[scores[i]].lo);
      }
      constant_lo_ = 1 / (1 + most);
      constant_hi_ = 1 / (1 + least);
      result.push_back(product(powers[i], inverse, 0, 0, 1));
    }
    return result;
  }

  Matrix attention(const Matrix& h, const std::string& name) {
    Matrix q, k, v, context;
    for (const Row& row : h) {
      q.push_back(linear(row, name + "query", true));
      k.push_back(linear(row, name + "key", true));
      v.push_back(linear(row, name + "value", true));
    }
    const size_t n = h.size(), width = h[0].size(), d = width / static_cast<size_t>(model_.heads);
    const auto part = [&](const Row& row, size_t head) {
      const auto begin = row.begin() + static_cast<std::ptrdiff_t>(head);
      return Row(begin, begin + static_cast<std::ptrdiff_t>(d));
    };
    for (size_t i = 0; i < n; ++i) {
      context.emplace_back();
      for (size_t head = 0; head < width; head += d) {
        Row scores;
        for (size_t j = 0; j < n; ++j) {
          scores.push_back(scalar_product(part(q[i], head), part(k[j], head),
                                          1 / std::sqrt(static_cast<double>(d)), true));
        }
        const Row p = softmax(scores);
        for (size_t c = head; c < head + d; ++c) {
          Row column;
          for (size_t j = 0; j < n; ++j) column.push_back(v[j][c]);
          context[i].push_back(scalar_product(p, column, 1, false));
        }
      }
    }
    return context;
  }

  void run(const std::vector<int64_t>& ids) {
    Matrix h;
    const auto width =
        static_cast<size_t>(weights_.at("embeddings.word_embeddings.weight").size(1));
    coordinates_ = positions_.size() * width;
    for (size_t n = 0; n < ids.size(); ++n) {
      const auto at = static_cast<int64_t>(n);
      const auto found = std::find(positions_.begin(), positions_.end(), at);
      const at::Tensor sum = weights_.at("embeddings.word_embeddings.weight")[ids[n]] +
                             weights_.at("embeddings.position_embeddings.weight")[at] +
                             weights_.at("embeddings.token_type_embeddings.weight")[0];
      Row row;
      for (size_t i = 0; i < width; ++i) {
        const double value = sum[static_cast<int64_t>(i)].item<double>();
        Var x{.lo = value, .hi = value, .lower = value, .upper = value};
        if (found != positions_.end()) {
          x.coordinate =
              (found - positions_.begin()) * static_cast<int64_t>(width) + static_cast<int64_t>(i);
          x.lo -= radius_;
          x.hi += radius_;
        }
        row.push_back(add(std::move(x), false));
      }
      h.push_back(norm(row, "embeddings.LayerNorm", true));
    }
    for (int64_t layer = 0; layer < model_.layers; ++layer) {
      const std::string name = "encoder.layer." + std::to_string(layer) + ".";
      const Matrix context = attention(h, name + "attention.self.");
      for (size_t i = 0; i < h.size(); ++i) {
        Row a = norm(sum(linear(context[i], name + "attention.output.dense", false), h[i]),
                     name + "attention.output.LayerNorm", false);
        Row inner;
        for (const size_t x : linear(a, name + "intermediate.dense", true))
          inner.push_back(activation(x));
        h[i] = norm(sum(linear(inner, name + "output.dense", false), a), name + "output.LayerNorm",
                    false);
      }
    }
    for (const size_t x : linear(h[0], "pooler.dense", true)) {
      pooled_.push_back(smooth(x, [](double v) { return std::tanh(v); }));
    }
  }

  const Model& model_;
  Method method_;
  std::vector<int64_t> positions_;
  int norm_;
  double radius_;
  std::map<std::string, at::Tensor> weights_;
  std::vector<Var> vars_;
  size_t coordinates_ = 0;
  Row pooled_;
  double constant_lo_ = 0, constant_hi_ = 1;  // of the next softmax product
};

}  // namespace seqfuse::oracle
