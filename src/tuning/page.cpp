#include "tuning/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "fusion/scheme_text.h"
#include "report/chart.h"
#include "report/html.h"
#include "tuning/predictor.h"
#include "tuning/validation.h"

namespace seqfuse::tuning {
namespace {

using fusion::Scheme;
using report::escape;
using report::Row;

constexpr size_t kMostSchemes = 12;  // rows of the table of the fastest
constexpr int kFolds = 5;
constexpr uint64_t kSeed = 1;

// The measurements of one setting on one card.
struct Group {
  Setting setting;
  Origin origin;
  std::vector<const Measurement*> all;
};

std::vector<Group> groups_of(std::span<const Measurement> measurements) {
  std::vector<Group> groups;
  for (const Measurement& m : measurements) {
    auto at = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.setting == m.setting && group.origin == m.origin;
    });
    if (at == groups.end()) at = groups.insert(at, Group{m.setting, m.origin, {}});
    at->all.push_back(&m);
  }
  return groups;
}

// Those of whole schemes that have a time, in order.
std::vector<const Measurement*> timed_schemes(const Group& group) {
  std::vector<const Measurement*> result;
  for (const Measurement* m : group.all) {
    if (m->scheme && m->milliseconds) result.push_back(m);
  }
  return result;
}

std::string milliseconds(double value) {
  return fmt::format("{:.4g} ms", value);
}

std::string drawn(int64_t scheme) {
  return fusion::drawn(Scheme::from_number(scheme));
}

std::string names_of(const fusion::Segment& segment) {
  std::string names;
  for (int op = segment.first; op <= segment.last; ++op) {
    if (!names.empty()) names += ' ';
    names += fusion::kGraph[static_cast<size_t>(op)].name;
  }
  return names;
}

std::string positions_of(const fusion::Segment& segment) {
  return segment.fused() ? fmt::format("{}-{}", segment.first + 1, segment.last + 1)
                         : std::to_string(segment.first + 1);
}

std::string item(const char* term, const std::string& description) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", term, escape(description));
}

std::string overview(const Group& group) {
  std::array<int64_t, 4> schemes{}, segments{};
  for (const Measurement* m : group.all)
    ++(m->scheme ? schemes : segments)[static_cast<size_t>(m->status)];
  const auto counts = [](const std::array<int64_t, 4>& by_status) {
    std::string text;
    for (size_t s = 0; s < by_status.size(); ++s) {
      if (by_status[s] > 0)
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", by_status[s],
                            name_of(static_cast<Status>(s)));
    }
    return text.empty() ? std::string("none") : text;
  };
  const Setting& s = group.setting;
  return "<dl>\n" +
         item("encoder", fmt::format("{}: {} layers, hidden {}, {} heads, inner {}, {}", s.model,
                                     s.layers, s.hidden, s.heads, s.inner, s.dtype)) +
         item("mask", fmt::format("{}, {:.1f} % of pairs", s.mask, 100 * s.mask_density)) +
         item("card", printed(group.origin)) + item("schemes measured", counts(schemes)) +
         item("segments measured", counts(segments)) +
         item("from, to", group.all.front()->date + ", " + group.all.back()->date) + "</dl>\n";
}

std::string fastest_table(std::vector<const Measurement*> timed) {
  std::stable_sort(timed.begin(), timed.end(), [](const Measurement* a, const Measurement* b) {
    return *a->milliseconds < *b->milliseconds;
  });
  const double best = *timed.front()->milliseconds;
  std::vector<Row> rows{{{"fastest schemes"}, {"time"}, {"to the best"}, {"operators", "code"}}};
  for (size_t i = 0; i < std::min(timed.size(), kMostSchemes); ++i) {
    const Measurement& m = *timed[i];
    rows.push_back(
        {{std::to_string(*m.scheme)},
         {milliseconds(*m.milliseconds)},
         {fmt::format("{:.3f}", *m.milliseconds / best)},
         {escape(drawn(*m.scheme) + (m.config.empty() ? "" : "  " + m.config)), "code"}});
  }
  return report::table(rows);
}

report::Dot dot_of(const Measurement& m, double predicted) {
  return {*m.milliseconds, predicted,
          fmt::format("{}: measured {}, predicted {}\n{}", *m.scheme, milliseconds(*m.milliseconds),
                      milliseconds(predicted), drawn(*m.scheme))};
}

// Two predictions of each time: the search's when it chose the scheme, and that of a predictor from which
// the scheme was held out.
std::string predicted_chart(const std::vector<const Measurement*>& timed) {
  report::ScatterChart chart{.title = "predicted against measured time, ms",
                             .x_label = "measured ms",
                             .diagonal = "as measured",
                             .series = {{.name = "by the search, before it measured", .color = 1},
                                        {.name = "held out, in five parts", .color = 0}}};
  std::vector<Example> examples;
  for (const Measurement* m : timed) {
    if (m->predicted) chart.series[0].dots.push_back(dot_of(*m, *m->predicted));
    examples.push_back({m->setting, Scheme::from_number(*m->scheme), *m->milliseconds});
  }
  const auto held = hold_out_schemes(examples, BoostingOptions(), kFolds, kSeed);
  for (size_t i = 0; i < timed.size(); ++i) {
    if (!std::isnan(held.predicted[i]))
      chart.series[1].dots.push_back(dot_of(*timed[i], held.predicted[i]));
  }
  return to_html(chart);
}

std::string best_so_far_chart(const std::vector<const Measurement*>& timed) {
  report::LineChart chart{.title = "best so far, ms", .x_label = "schemes measured"};
  report::Series best{.name = "best so far", .color = 0}, each{.name = "measured", .color = 5};
  double lowest = *timed.front()->milliseconds;
  for (size_t i = 0; i < timed.size(); ++i) {
    const auto x = static_cast<double>(i + 1);
    lowest = std::min(lowest, *timed[i]->milliseconds);
    each.points.push_back({x, *timed[i]->milliseconds});
    best.points.push_back({x, lowest});
  }
  chart.series = {std::move(each), std::move(best)};
  return to_html(chart);
}

using Span = std::pair<int, int>;  // first and last operator

// The fastest time of each segment.
std::map<Span, const Measurement*> fastest_segments(const Group& group) {
  std::map<Span, const Measurement*> fastest;
  for (const Measurement* m : group.all) {
    if (!m->segment || !m->milliseconds) continue;
    const Measurement*& known = fastest[{m->segment->first, m->segment->last}];
    if (known == nullptr || *m->milliseconds < *known->milliseconds) known = m;
  }
  return fastest;
}

std::string segment_table(const std::map<Span, const Measurement*>& fastest) {
  std::vector<Row> rows{{{"segment"}, {"time"}, {"apart"}, {"operators", "code"}}};
  for (const auto& [span, m] : fastest) {
    double apart = 0;  // its operators one by one
    for (int op = span.first; op <= span.second; ++op) {
      const auto one = fastest.find({op, op});
      apart = one == fastest.end() ? NAN : apart + *one->second->milliseconds;
    }
    rows.push_back(
        {{positions_of(*m->segment)},
         {milliseconds(*m->milliseconds)},
         {std::isnan(apart) ? "" : milliseconds(apart)},
         {escape(names_of(*m->segment) + (m->config.empty() ? "" : "  " + m->config)), "code"}});
  }
  return "<details><summary>All measured segments of a layer</summary>\n" + report::table(rows) +
         "</details>\n";
}

// The segments of the fastest scheme in one layer.
std::string segment_chart(const Group& group, const Measurement& best) {
  const auto fastest = fastest_segments(group);
  if (fastest.empty()) return "";
  report::BarChart chart{.title = fmt::format("time by segment of {}, ms of a layer", *best.scheme),
                         .x_label = "operators, by their positions",
                         .counts = false};
  double sum = 0;
  std::string missing;
  for (const fusion::Segment& segment : Scheme::from_number(*best.scheme).segments()) {
    const auto at = fastest.find({segment.first, segment.last});
    if (at == fastest.end()) {
      if (!missing.empty()) missing += ", ";
      missing += positions_of(segment);
      continue;
    }
    const double time = *at->second->milliseconds;
    sum += time;
    chart.bars.push_back(
        {.label = positions_of(segment),
         .explanation = fmt::format("{}: {}", names_of(segment), milliseconds(time)),
         .value = time});
  }
  const auto layers = static_cast<double>(group.setting.layers);
  const std::string note =
      missing.empty()
          ? fmt::format("Its segments take {} in {} layers; the whole program takes {}.",
                        milliseconds(sum * layers), group.setting.layers,
                        milliseconds(*best.milliseconds))
          : fmt::format("Not measured alone: {}.", missing);
  return report::charts(to_html(chart)) + "<p class=\"note\">" + note + "</p>\n" +
         segment_table(fastest);
}

std::string group_section(const Group& group) {
  const auto timed = timed_schemes(group);
  const std::string title = escape(printed(group.setting));
  if (timed.empty()) {
    const auto fastest = fastest_segments(group);
    return report::section(title, overview(group) +
                                      "<p class=\"note\">No scheme has a time yet.</p>\n" +
                                      (fastest.empty() ? "" : segment_table(fastest)));
  }
  const Measurement& best = **std::min_element(timed.begin(), timed.end(),
                                               [](const Measurement* a, const Measurement* b) {
                                                 return *a->milliseconds < *b->milliseconds;
                                               });
  return report::section(title,
                         overview(group) + fastest_table(timed) +
                             report::charts(best_so_far_chart(timed) + predicted_chart(timed)) +
                             segment_chart(group, best));
}

}  // namespace

std::string html_page(std::string_view title, std::span<const Measurement> measurements,
                      std::string_view version) {
  std::string main;
  for (const Group& group : groups_of(measurements)) main += group_section(group);
  if (main.empty()) main = "<p class=\"note\">Nothing has been measured yet.</p>\n";
  return report::document(fmt::format("seqfuse report: {}", title),
                          "<h1>" + escape(title) + "</h1>\n", main, version);
}

}  // namespace seqfuse::tuning
