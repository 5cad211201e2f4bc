#include "training/profile/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/progress.h"
#include "training/profile/kernel_classes.h"

namespace seqfuse::training {
namespace {

using Row = StepProfile::Row;

constexpr size_t kNamesInTable = 15, kNamesInFile = 40;
constexpr size_t kLongestName = 300;  // kernel names contain all template arguments

double seconds(int64_t time) {
  return 1e-9 * static_cast<double>(time);
}

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// The denominator of the rows' shares: the GPU's busy time, or the steps' wall time.
int64_t whole_of(const StepProfile& profile) {
  return profile.on_gpu ? profile.busy : profile.time;
}

std::vector<Row> longest_first(const std::map<std::string, Row>& rows) {
  std::vector<Row> sorted;
  for (const auto& [name, row] : rows) sorted.push_back(row);
  std::ranges::stable_sort(sorted, std::greater<>(), &Row::time);
  return sorted;
}

nlohmann::json rows_to_json(const std::vector<Row>& rows, size_t limit,
                            const StepProfile& profile) {
  auto list = nlohmann::json::array();
  for (size_t i = 0; i < std::min(limit, rows.size()); ++i) {
    list.push_back({{"name", rows[i].name.substr(0, kLongestName)},
                    {"seconds_a_step", seconds(rows[i].time) / profile.steps()},
                    {"share", ratio(rows[i].time, whole_of(profile))},
                    {"count_a_step", ratio(rows[i].count, profile.steps())}});
  }
  return list;
}

std::string format_rows(const std::vector<Row>& rows, size_t limit, const StepProfile& profile) {
  std::string text = fmt::format("  {:<40}{:>11}{:>9}{:>12}\n", "", "ms per step", "share",
                                 profile.on_gpu ? "launches" : "calls");
  for (size_t i = 0; i < std::min(limit, rows.size()); ++i) {
    text += fmt::format("  {:<40}{:>11.3f}{:>7.1f} %{:>12.1f}\n", rows[i].name.substr(0, 39),
                        1e3 * seconds(rows[i].time) / static_cast<double>(profile.steps()),
                        100 * ratio(rows[i].time, whole_of(profile)),
                        ratio(rows[i].count, profile.steps()));
  }
  return text;
}

double layer_tflops(const StepProfile& profile) {
  return 1e-12 * *profile.layer_flops / seconds(profile.time);
}

}  // namespace

int64_t covered(std::vector<Span> spans) {
  std::ranges::sort(spans, {}, &Span::begin);
  int64_t total = 0, reached = std::numeric_limits<int64_t>::min();
  for (const Span& span : spans) {
    if (span.end <= reached) continue;
    total += span.end - std::max(span.begin, reached);
    reached = span.end;
  }
  return total;
}

std::vector<int64_t> self_times(const std::vector<Work>& work) {
  std::vector<size_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);
  // An enclosing span comes before the spans inside it.
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    return std::tuple(work[i].thread, work[i].span.begin, -work[i].span.end);
  });
  std::vector<int64_t> times(work.size());
  std::vector<size_t> open;  // each inside the one before
  for (const size_t i : order) {
    const Span& span = work[i].span;
    times[i] = span.end - span.begin;
    while (!open.empty() && (work[open.back()].thread != work[i].thread ||
                             work[open.back()].span.end <= span.begin)) {
      open.pop_back();
    }
    if (!open.empty()) times[open.back()] -= times[i];
    open.push_back(i);
  }
  return times;
}

std::optional<double> peak_tflops(const std::string& gpu_name) {
  // Compare whole words, since there are cards named A1000 and GH200.
  const auto has = [&](std::string_view word) {
    const auto inside = [&](size_t at) {
      return at < gpu_name.size() && std::isalnum(static_cast<unsigned char>(gpu_name[at])) != 0;
    };
    const size_t at = gpu_name.find(word);
    return at != std::string::npos && (at == 0 || !inside(at - 1)) && !inside(at + word.size());
  };
  if (has("MIG")) return std::nullopt;  // a slice of a card
  if (has("A100")) return 312;
  if ((has("H100") || has("H200")) && !has("PCIe") && !has("NVL")) return 989;
  return std::nullopt;
}

void StepProfile::add_up(const std::vector<Work>& work) {
  std::vector<Span> spans;
  std::map<KernelClass, Row> by_class;
  std::map<std::string, Row> by_name;
  const std::vector<int64_t> self = on_gpu ? std::vector<int64_t>() : self_times(work);
  const auto add = [](Row& row, const std::string& name, int64_t time) {
    row.name = name;
    row.time += time;
    ++row.count;
  };
  for (size_t i = 0; i < work.size(); ++i) {
    const auto& [name, span, thread] = work[i];
    add(by_name[name], name, on_gpu ? span.end - span.begin : self[i]);
    if (!on_gpu) continue;
    spans.push_back(span);
    const KernelClass kind = kernel_class(name);
    add(by_class[kind], name_of(kind), span.end - span.begin);
  }
  busy = covered(std::move(spans));
  for (const auto& [kind, row] : by_class) classes.push_back(row);
  names = longest_first(by_name);
}

nlohmann::json to_json(const StepProfile& profile) {
  nlohmann::json json = {
      {"device", profile.device},
      {"first_step", profile.first_step},
      {"last_step", profile.last_step},
      {"steps", profile.steps()},
      {"seconds_a_step", seconds(profile.time) / static_cast<double>(profile.steps())},
      {"tokens_a_step", ratio(profile.tokens, profile.steps())},
      {"tokens_per_second", static_cast<double>(profile.tokens) / seconds(profile.time)}};
  if (profile.layer_flops) {
    json["layer_flops_a_step"] = *profile.layer_flops / static_cast<double>(profile.steps());
    json["layer_tflops"] = layer_tflops(profile);
    if (profile.peak_tflops) {
      json["peak_tflops"] = *profile.peak_tflops;
      json["mfu"] = layer_tflops(profile) / *profile.peak_tflops;
    }
  }
  if (!profile.on_gpu) {
    json["operators"] = rows_to_json(profile.names, kNamesInFile, profile);
    return json;
  }
  json["gpu_busy_seconds_a_step"] = seconds(profile.busy) / static_cast<double>(profile.steps());
  json["gpu_idle_share"] = 1 - ratio(profile.busy, profile.time);
  json["peak_allocated_bytes"] = profile.allocated;
  json["peak_reserved_bytes"] = profile.reserved;
  json["classes"] = rows_to_json(profile.classes, profile.classes.size(), profile);
  json["kernels"] = rows_to_json(profile.names, kNamesInFile, profile);
  return json;
}

std::string format_profile(const StepProfile& profile) {
  std::string text =
      fmt::format("steps {} to {} on {}: {:.3f} ms per step, {} tokens/s\n", profile.first_step,
                  profile.last_step, profile.device,
                  1e3 * seconds(profile.time) / static_cast<double>(profile.steps()),
                  format_count(static_cast<double>(profile.tokens) / seconds(profile.time)));
  if (profile.on_gpu) {
    text += format_rows(profile.classes, profile.classes.size(), profile);
    text += fmt::format("  GPU idle for {:.1f} % of the time; at most {}B of its memory in use\n",
                        100 * (1 - ratio(profile.busy, profile.time)),
                        format_count(static_cast<double>(profile.allocated)));
  } else {
    text += format_rows(profile.names, kNamesInTable, profile);
  }
  if (profile.layer_flops && profile.on_gpu) {
    text += fmt::format("  layers: {:.1f} TFLOP/s", layer_tflops(profile));
    if (profile.peak_tflops) {
      text += fmt::format(", {:.1f} % of {:.0f} (MFU)",
                          100 * layer_tflops(profile) / *profile.peak_tflops, *profile.peak_tflops);
    }
    text += "\n";
  }
  text.pop_back();  // the end of the last line
  return text;
}

}  // namespace seqfuse::training
