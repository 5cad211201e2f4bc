#include "report/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "report/chart.h"
#include "report/html.h"
#include "report/page_tables.h"

namespace seqfuse::report {
namespace {

// A field of metrics.jsonl that has a chart.
struct TrainingChart {
  const char *field, *title;
  bool only_if_it_varies;
};
constexpr TrainingChart kTrainingCharts[] = {
    {"loss", "loss", false},
    {"tokens_per_second", "tokens/s, mean since training started or resumed", false},
    {"gradient_norm", "gradient norm", false},
    {"learning_rate", "learning rate", true},
};

std::string training_chart(const std::vector<RunLog>& runs, const TrainingChart& wanted) {
  LineChart chart{.title = wanted.title, .x_label = "step"};
  std::set<double> values;
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto scalar = runs[r].scalars.find(wanted.field);
    if (scalar == runs[r].scalars.end()) continue;
    Series series{.name = runs[r].name, .color = static_cast<int>(r)};
    for (const LogPoint& point : scalar->second) {
      series.points.push_back({static_cast<double>(point.step), point.value, point.epoch});
      values.insert(point.value);
    }
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty() || (wanted.only_if_it_varies && values.size() < 2)) return "";
  return to_html(chart);
}

std::string training_charts(const std::vector<RunLog>& runs) {
  std::string content;
  for (const TrainingChart& chart : kTrainingCharts) content += training_chart(runs, chart);
  return content.empty() ? "<p class=\"note\">No run has logged a step yet.</p>\n"
                         : charts(content);
}

std::string metric_chart(const std::vector<RunLog>& runs, const std::string& metric) {
  LineChart chart{.title = metric, .x_label = "step"};
  for (size_t r = 0; r < runs.size(); ++r) {
    Series series{.name = runs[r].name, .color = static_cast<int>(r)};
    for (const Evaluation& evaluation : runs[r].evaluations) {
      const double value = value_of(evaluation.metrics, metric);
      series.points.push_back({static_cast<double>(evaluation.step), value, evaluation.epoch});
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
    for (const auto& [name, metrics] : runs[r].baselines) {
      const double value = value_of(metrics, metric);
      const bool shown = std::any_of(
          chart.references.begin(), chart.references.end(),
          [&](const Reference& other) { return other.name == name && other.y == value; });
      if (!std::isnan(value) && !shown) chart.references.push_back({name, value});
    }
  }
  return to_html(chart);
}

std::string metric_charts(const std::vector<RunLog>& runs) {
  std::vector<std::string> names;
  for (const RunLog& run : runs) {
    for (const std::string& name : run.metric_names) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::string content;
  for (const std::string& name : names) content += metric_chart(runs, name);
  return content.empty() ? "" : charts(content);
}

std::string dataset_charts(const DatasetStatistics& statistics) {
  BarChart lengths{.title = "users by number of events",
                   .x_label = "number of events (lower end of each bucket)"};
  for (const LengthBucket& bucket : statistics.lengths) {
    lengths.bars.push_back({.label = std::to_string(bucket.low),
                            .explanation = fmt::format("{} to {} events: {} users", bucket.low,
                                                       bucket.high, bucket.users),
                            .value = static_cast<double>(bucket.users)});
  }
  LineChart popularity{
      .title = "events by popularity of the item", .x_label = "rank", .logarithmic = true};
  Series& series = popularity.series.emplace_back();
  series.name = "events";
  for (const RankedItem& item : statistics.popularity) {
    series.points.push_back({static_cast<double>(item.rank), static_cast<double>(item.events)});
  }
  return charts(to_html(lengths) + to_html(popularity));
}

std::string dataset_section(const RunDataset& dataset, bool name_runs) {
  std::string content;
  if (name_runs) {
    content +=
        fmt::format("<p>of {}</p>\n", escape(fmt::format("{}", fmt::join(dataset.runs, ", "))));
  }
  content += fmt::format("<p class=\"note\">{}</p>\n", escape(dataset.path));
  if (!dataset.statistics) {
    return section("Dataset", content + fmt::format("<p>{}</p>\n", escape(dataset.problem)));
  }
  content += statistics_table(*dataset.statistics) + dataset_charts(*dataset.statistics);
  return section("Dataset " + escape(dataset.statistics->name), content);
}

std::string joined_names(const std::vector<RunLog>& runs) {
  std::string names;
  for (const RunLog& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  return names;
}

}  // namespace

std::string html_page(const std::vector<RunLog>& runs, const std::vector<RunDataset>& datasets,
                      const std::string& version) {
  const std::string names = joined_names(runs);
  std::string main = section("Metrics", metrics_table(runs) + metric_charts(runs));
  main += section("Training", training_charts(runs));
  main += section(runs.size() == 1 ? "Configuration" : "Configuration: differences",
                  configuration(runs));
  for (const RunDataset& dataset : datasets) main += dataset_section(dataset, datasets.size() > 1);
  return document("seqfuse report: " + names, "<h1>" + escape(names) + "</h1>\n" + runs_table(runs),
                  main, version);
}

}  // namespace seqfuse::report
