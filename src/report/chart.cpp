#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/axis.h"
#include "report/html.h"

namespace seqfuse::report {
namespace {

// In units of the view box. A unit is 0.65 pixels on a phone, about 1 on a laptop.
constexpr double kWidth = 560, kHeight = 300;
constexpr double kLeft = 72, kRight = 16, kTop = 14, kBottom = 50;
constexpr size_t kMaxPoints = 600;  // about one per pixel
constexpr size_t kMarkedPoints = 40;
constexpr int kColors = 6;

double pixel_x(const Axis& axis, double x) {
  return kLeft + axis.position(x) * (kWidth - kLeft - kRight);
}

double pixel_y(const Axis& axis, double y) {
  return kHeight - kBottom - axis.position(y) * (kHeight - kTop - kBottom);
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string figure(const std::string& title, const std::string& x_label,
                   const std::string& content) {
  return fmt::format(
      "<figure class=\"chart\" data-x=\"{}\"><figcaption>{}</figcaption>{}</figure>\n",
      escape(x_label), escape(title), content);
}

std::string svg(const std::string& title, const std::string& content) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>", kWidth,
                     kHeight, escape(title), content);
}

std::string y_grid(const Axis& y) {
  std::string text;
  for (const Tick& tick : y.ticks) {
    const double at = pixel_y(y, tick.value);
    text += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text class=\"y\" x=\"{}\" "
        "y=\"{:.1f}\">{}</text>\n",
        kLeft, at, kWidth - kRight, kLeft - 8, at + 4, escape(tick.label));
  }
  return text;
}

std::string x_tick(double at, const std::string& label) {
  return fmt::format("<text class=\"x\" x=\"{:.1f}\" y=\"{}\">{}</text>\n", at,
                     kHeight - kBottom + 20, escape(label));
}

std::string x_axis(const std::string& label) {
  return fmt::format(
      "<path class=\"axis\" d=\"M{} {}H{}\"/><text class=\"x\" x=\"{}\" y=\"{}\">{}</text>\n",
      kLeft, kHeight - kBottom, kWidth - kRight, (kLeft + kWidth - kRight) / 2, kHeight - 7,
      escape(label));
}

// When colours run out, dashes distinguish the series.
std::string line_class(int color) {
  return fmt::format("line c{}{}", color % kColors, color >= kColors ? " dashed" : "");
}

std::string draw(const Series& series, const Axis& x, const Axis& y) {
  std::vector<Point> points = thin_out(series.points, kMaxPoints);
  std::string path, values, marks;
  bool pen_down = false;
  for (const Point& point : points) {
    if (!std::isfinite(point.y)) {
      pen_down = false;
      continue;
    }
    const double px = pixel_x(x, point.x), py = pixel_y(y, point.y);
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? 'L' : 'M', px, py);
    values += fmt::format("{}[{:.1f},{:.1f},{},{:.6g},{}]", values.empty() ? "" : ",", px, py,
                          point.x, point.y, point.epoch);
    if (points.size() <= kMarkedPoints) {
      marks += fmt::format("<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>",
                           series.color % kColors, px, py);
    }
    pen_down = true;
  }
  return fmt::format("<path class=\"{}\" data-name=\"{}\" data-points=\"[{}]\" d=\"{}\"/>{}\n",
                     line_class(series.color), escape(series.name), values, path, marks);
}

std::string legend_entry(const std::string& css_class, const std::string& name) {
  return fmt::format(
      "<li><svg class=\"key\" viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path class=\"{}\" "
      "d=\"M1 5H27\"/></svg>{}</li>",
      css_class, escape(name));
}

std::string legend(const LineChart& chart) {
  std::string entries;
  for (const Series& series : chart.series) {
    if (!series.points.empty()) entries += legend_entry(line_class(series.color), series.name);
  }
  for (size_t r = 0; r < chart.references.size(); ++r) {
    entries += legend_entry(
        fmt::format("reference r{}", r % 3),
        fmt::format("{} {}", chart.references[r].name, short_number(chart.references[r].y)));
  }
  return "<ul class=\"legend\">" + entries + "</ul>";
}

}  // namespace

std::string to_html(const LineChart& chart) {
  Range x_range, y_range;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      if (!std::isfinite(point.y)) continue;
      x_range.add(point.x);
      y_range.add(point.y);
    }
  }
  if (x_range.low > x_range.high) {
    return figure(chart.title, chart.x_label, "<p class=\"note\">no values yet</p>");
  }
  for (const Reference& reference : chart.references) y_range.add(reference.y);
  Axis x, y;
  if (chart.logarithmic) {
    x = logarithmic_axis(x_range.low, x_range.high);
    y = logarithmic_axis(y_range.low, y_range.high);
  } else {
    x = linear_axis(0, x_range.high, 5, /*integers=*/true);
    const double margin = (y_range.high - y_range.low) * 0.05;
    y = linear_axis(y_range.low - margin, y_range.high + margin, 7);
  }
  std::string content = y_grid(y);
  for (const Tick& tick : x.ticks) content += x_tick(pixel_x(x, tick.value), tick.label);
  content += x_axis(chart.x_label);
  for (size_t r = 0; r < chart.references.size(); ++r) {
    content += fmt::format("<path class=\"reference r{}\" d=\"M{} {:.1f}H{}\"/>\n", r % 3, kLeft,
                           pixel_y(y, chart.references[r].y), kWidth - kRight);
  }
  for (const Series& series : chart.series) content += draw(series, x, y);
  const bool names = chart.series.size() + chart.references.size() > 1;
  return figure(chart.title, chart.x_label,
                svg(chart.title, content) + (names ? legend(chart) : ""));
}

std::string to_html(const ScatterChart& chart) {
  Range range;
  const auto shown = [](const Dot& dot) {
    return std::isfinite(dot.x) && std::isfinite(dot.y) && dot.x > 0 && dot.y > 0;
  };
  for (const DotSeries& series : chart.series) {
    for (const Dot& dot : series.dots) {
      if (!shown(dot)) continue;
      range.add(dot.x);
      range.add(dot.y);
    }
  }
  if (range.low > range.high)
    return figure(chart.title, chart.x_label, "<p class=\"note\">no values yet</p>");
  // Within a power of ten a logarithmic axis would have few ticks.
  const Axis axis = range.high > 8 * range.low
                        ? logarithmic_axis(range.low / 1.05, range.high * 1.05)
                        : linear_axis(range.low * .95, range.high * 1.05, 6);
  std::string content = y_grid(axis);
  for (const Tick& tick : axis.ticks) content += x_tick(pixel_x(axis, tick.value), tick.label);
  content += x_axis(chart.x_label);
  content += fmt::format("<path class=\"reference r0\" d=\"M{} {}L{} {}\"/>\n", kLeft,
                         kHeight - kBottom, kWidth - kRight, kTop);
  std::string entries = legend_entry("reference r0", chart.diagonal);
  for (const DotSeries& series : chart.series) {
    if (series.dots.empty()) continue;
    for (const Dot& dot : series.dots) {
      if (!shown(dot)) continue;
      content += fmt::format(
          "<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}</title></circle>\n",
          series.color % kColors, pixel_x(axis, dot.x), pixel_y(axis, dot.y),
          escape(dot.explanation));
    }
    entries += legend_entry(line_class(series.color), series.name);
  }
  return figure(chart.title, chart.x_label,
                svg(chart.title, content) + "<ul class=\"legend\">" + entries + "</ul>");
}

std::string to_html(const BarChart& chart) {
  double highest = 0;
  for (const Bar& bar : chart.bars) highest = std::max(highest, bar.value);
  if (highest == 0) return figure(chart.title, chart.x_label, "<p class=\"note\">no data</p>");
  const Axis y = linear_axis(0, highest * 1.08, 5, chart.counts);
  std::string content = y_grid(y);
  const double pitch = (kWidth - kLeft - kRight) / static_cast<double>(chart.bars.size());
  for (size_t b = 0; b < chart.bars.size(); ++b) {
    const Bar& bar = chart.bars[b];
    const double left = kLeft + pitch * static_cast<double>(b), top = pixel_y(y, bar.value);
    const double width = std::min(pitch * 0.8, 60.0), middle = left + pitch / 2;
    content += fmt::format(
        "<g><title>{}</title><rect class=\"bar\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\"/><text class=\"x value\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text></g>\n",
        escape(bar.explanation), middle - width / 2, top, width, kHeight - kBottom - top, middle,
        top - 5, short_number(bar.value));
    content += x_tick(middle, bar.label);
  }
  return figure(chart.title, chart.x_label, svg(chart.title, content + x_axis(chart.x_label)));
}

std::vector<Point> thin_out(const std::vector<Point>& points, size_t max_points) {
  if (points.size() <= max_points) return points;
  const size_t stretches = std::max<size_t>(max_points / 2, 1);
  std::vector<Point> kept = {points.front()};
  for (size_t s = 0; s < stretches; ++s) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * s / stretches);
    const auto end =
        points.begin() + static_cast<std::ptrdiff_t>(points.size() * (s + 1) / stretches);
    const auto lower = [](const Point& a, const Point& b) { return a.y < b.y; };
    auto [first, second] = std::minmax_element(begin, end, lower);
    if (second < first) std::swap(first, second);
    for (const auto& point : {first, second}) {
      if (point->x > kept.back().x) kept.push_back(*point);
    }
  }
  if (points.back().x > kept.back().x) kept.push_back(points.back());
  return kept;
}

}  // namespace seqfuse::report
