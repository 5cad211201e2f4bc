#include "report/page_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <limits>

#include "report/axis.h"
#include "report/html.h"

namespace seqfuse::report {
namespace {

constexpr size_t kMostColumns = 8;  // a wider table of metrics is transposed: one row per metric

std::vector<Row> transposed(const std::vector<Row>& rows) {
  std::vector<Row> result(rows[0].size(), Row(rows.size()));
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < rows[0].size(); ++c) result[c][r] = rows[r][c];
  }
  return result;
}

std::string utc(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return text.data();
}

// 100836 as 100,836.
std::string grouped(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// The dataset name in the configuration, without quotes.
std::string dataset_name(const RunLog& run) {
  for (const auto& [name, value] : run.parameters) {
    if (name == "DatasetArgs.dataset_name" && value.size() > 2) {
      return value.substr(1, value.size() - 2);
    }
  }
  return run.info.dataset_path;
}

struct Model {
  std::string name;
  Metrics metrics;
};

std::vector<Model> models_of(const std::vector<RunLog>& runs) {
  std::vector<Model> models;
  for (const RunLog& run : runs) {
    const Evaluation* last = run.last_evaluation();
    if (last == nullptr) {
      models.push_back({run.name + ", no evaluation yet", {}});
      continue;
    }
    models.push_back({fmt::format("{}, last: step {}", run.name, last->step), last->metrics});
    const Evaluation* best = run.best_evaluation();
    if (best == last) {
      models.back().name = fmt::format("{}, last and best: step {}", run.name, last->step);
    } else {
      models.push_back({fmt::format("{}, best: step {}", run.name, best->step), best->metrics});
    }
  }
  // Runs on the same windows have the same baselines; show them once.
  NamedMetrics shown;
  std::string without;
  for (const RunLog& run : runs) {
    for (const auto& baseline : run.baselines) {
      if (std::find(shown.begin(), shown.end(), baseline) != shown.end()) continue;
      const bool name_taken = std::any_of(shown.begin(), shown.end(), [&](const auto& other) {
        return other.first == baseline.first;
      });
      models.push_back(
          {baseline.first + (name_taken ? " (" + run.name + ")" : ""), baseline.second});
      shown.push_back(baseline);
    }
    if (run.baselines.empty()) without += (without.empty() ? "" : ", ") + run.name;
  }
  if (!without.empty()) models.push_back({fmt::format("baselines of {}", without), {}});
  return models;
}

std::vector<std::string> metric_names(const std::vector<RunLog>& runs) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const RunLog& run : runs) {
    for (const std::string& name : run.metric_names) add(name);
  }
  return names;
}

std::string missing_baselines(const std::vector<RunLog>& runs) {
  const auto without = std::find_if(runs.begin(), runs.end(),
                                    [](const RunLog& run) { return run.baselines.empty(); });
  if (without == runs.end()) return "";
  return fmt::format(
      "<p class=\"note\">No baselines: <code>seqfuse train</code> saves them when it ends. If a "
      "run "
      "ended without them, run <code>seqfuse train {} --resume {}</code></p>\n",
      name_of(without->info.task), escape(without->path.string()));
}

std::string seen_targets(const std::vector<RunLog>& runs) {
  std::string notes;
  for (const RunLog& run : runs) {
    const Evaluation* last = run.last_evaluation();
    if (last == nullptr || last->seen_targets == 0) continue;
    notes += fmt::format(
        "<p class=\"note\">{}: {} of {} targets ({:.1f}%) are items that the user has had "
        "before.</p>\n",
        escape(run.name), grouped(last->seen_targets), grouped(last->targets),
        100. * static_cast<double>(last->seen_targets) / static_cast<double>(last->targets));
  }
  return notes;
}

// Parameters that changed when runs were resumed.
std::string changes(const std::vector<RunLog>& runs) {
  std::vector<Row> rows = {{{"run"}, {"after step"}, {"parameter"}, {"before"}, {"now"}}};
  const auto shown = [](const std::string& value) { return value.empty() ? "–" : escape(value); };
  for (const RunLog& run : runs) {
    for (const ConfigurationChange& change : run.changes) {
      rows.push_back({{escape(run.name)},
                      {grouped(change.step)},
                      {escape(change.parameter)},
                      {shown(change.before), "code"},
                      {shown(change.now), "code"}});
    }
  }
  return rows.size() == 1 ? ""
                          : "<p class=\"note\">Changed when a run was resumed:</p>\n" + table(rows);
}

}  // namespace

std::string runs_table(const std::vector<RunLog>& runs) {
  std::vector<Row> rows = {{{"run"},
                            {"task"},
                            {"dataset"},
                            {"step"},
                            {"epoch"},
                            {"training"},
                            {"tokens/s"},
                            {"last line"},
                            {"seed"},
                            {"seqfuse"}}};
  for (const RunLog& run : runs) {
    const auto speed = run.scalars.find("tokens_per_second");
    rows.push_back({{escape(run.name)},
                    {std::string(name_of(run.info.task))},
                    {escape(dataset_name(run))},
                    {grouped(run.last_step)},
                    {grouped(run.last_epoch)},
                    {run.seconds < 1000 ? fmt::format("{:.1f} s", run.seconds)
                                        : grouped(std::llround(run.seconds)) + " s"},
                    {speed == run.scalars.end() ? "–" : short_number(speed->second.back().value)},
                    {utc(run.last_written)},
                    {std::to_string(run.info.seed)},
                    {escape(run.info.version)}});
  }
  return table(rows);
}

std::string metrics_table(const std::vector<RunLog>& runs) {
  const std::vector<std::string> names = metric_names(runs);
  if (names.empty()) return "<p class=\"note\">No run has an evaluation yet.</p>\n";
  const std::vector<Model> models = models_of(runs);
  std::vector<Row> rows(models.size() + 1);
  rows[0].push_back({""});
  for (size_t m = 0; m < models.size(); ++m) rows[m + 1].push_back({escape(models[m].name)});
  for (const std::string& name : names) {
    double best = std::numeric_limits<double>::quiet_NaN();
    int values = 0;
    for (const Model& model : models) {
      const double value = value_of(model.metrics, name);
      if (is_better(name, value, best)) best = value;
      values += std::isnan(value) ? 0 : 1;
    }
    rows[0].push_back({escape(name)});
    for (size_t m = 0; m < models.size(); ++m) {
      const double value = value_of(models[m].metrics, name);
      rows[m + 1].push_back({std::isnan(value) ? "–" : fmt::format("{:.4f}", value),
                             value == best && values > 1 ? "best" : ""});
    }
  }
  if (names.size() > kMostColumns) rows = transposed(rows);
  return table(rows) + seen_targets(runs) + missing_baselines(runs);
}

std::string configuration(const std::vector<RunLog>& runs) {
  if (runs.size() == 1) {
    return fmt::format(
               "<details><summary>operative configuration, {} parameters</summary><pre>{}</pre>"
               "</details>\n",
               runs[0].parameters.size(), escape(runs[0].operative)) +
           changes(runs);
  }
  std::vector<Row> rows(1, Row{{"parameter"}});
  std::vector<Parameters> parameters;
  for (const RunLog& run : runs) {
    rows[0].push_back({escape(run.name)});
    parameters.push_back(run.parameters);
  }
  for (const Difference& difference : differences(parameters)) {
    Row& row = rows.emplace_back(Row{{escape(difference.name)}});
    for (const std::string& value : difference.values) {
      row.push_back({value.empty() ? "–" : escape(value), "code"});
    }
  }
  if (rows.size() == 1) {
    return "<p class=\"note\">The runs have the same configuration.</p>\n" + changes(runs);
  }
  return table(rows) + changes(runs);
}

std::string statistics_table(const DatasetStatistics& s) {
  const std::vector<Row> rows = {
      {{"users"}, {grouped(s.users)}},
      {{"items"}, {grouped(s.items)}},
      {{"events"}, {grouped(s.events)}},
      {{"events per user"},
       {fmt::format("{} to {}, median {}, mean {:.1f}", grouped(s.min_length),
                    grouped(s.max_length), grouped(s.median_length), s.mean_length)}},
      {{"items without events"}, {grouped(s.items_without_events)}},
      {{"events in the most popular 1% of items"},
       {fmt::format("{:.1f}%", 100 * s.top_percent_share)}}};
  std::string text = "<dl>";
  for (const Row& row : rows) {
    text += fmt::format("<dt>{}</dt><dd>{}</dd>", row[0].html, row[1].html);
  }
  return text + "</dl>\n";
}

}  // namespace seqfuse::report
