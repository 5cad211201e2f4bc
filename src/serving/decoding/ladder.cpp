#include "serving/decoding/ladder.h"

#include <fmt/format.h>

#include <algorithm>

namespace seqfuse::serving {
using models::gpt_neox::StepOptions;
namespace {

std::string parts_of(const StepOptions& step, bool int8) {
  std::string text;
  const auto add = [&](bool there, const char* name) {
    if (there) text += (text.empty() ? "" : ", ") + std::string(name);
  };
  add(step.graph, "graph");
  add(step.fused_norms, "norms");
  add(step.merged_linears, "merged");
  add(step.early_starts, "early");
  add(int8, "int8");
  return text.empty() ? "own kernels alone" : text;
}

}  // namespace

std::vector<Rung> ladder_rungs() {
  constexpr StepOptions kNone{.graph = false,
                              .own_kernels = false,
                              .fused_norms = false,
                              .merged_linears = false,
                              .early_starts = false};
  std::vector<Rung> rungs = {{.name = "PyTorch's operators", .step = kNone, .ladder = true}};
  const auto add = [&](const char* name, auto&& change) {
    Rung rung = rungs.back();
    rung.name = name;
    change(rung);
    rungs.push_back(rung);
  };
  add("+ graph", [](Rung& rung) { rung.step.graph = true; });
  add("+ own kernels", [](Rung& rung) { rung.step.own_kernels = true; });
  add("+ fused norms", [](Rung& rung) { rung.step.fused_norms = true; });
  add("+ merged linears", [](Rung& rung) { rung.step.merged_linears = true; });
  add("+ early starts", [](Rung& rung) { rung.step.early_starts = true; });
  add("+ int8 weights", [](Rung& rung) { rung.int8 = true; });
  for (int bits = 0; bits < 32; ++bits) {
    Rung rung{.step = {.graph = (bits & 1) != 0,
                       .own_kernels = true,
                       .fused_norms = (bits & 2) != 0,
                       .merged_linears = (bits & 4) != 0,
                       .early_starts = (bits & 8) != 0},
              .int8 = (bits & 16) != 0};
    rung.name = parts_of(rung.step, rung.int8);
    if (std::ranges::none_of(rungs, [&](const Rung& other) {
          return other.step == rung.step && other.int8 == rung.int8;
        })) {
      rungs.push_back(rung);
    }
  }
  return rungs;
}

std::string ladder_heading() {
  return fmt::format("{:<28} {:>5} {:>7} {:>5} {:>6} {:>5} {:>4} {:>9} {:>7} {:>8} {:>10}\n", "",
                     "graph", "kernels", "norms", "merged", "early", "int8", "TPOT ms", "times",
                     "launches", "perplexity");
}

std::string ladder_line(const RungSpeed& speed, const RungSpeed* before) {
  const StepOptions& step = speed.rung.step;
  const auto sign = [](bool there) { return there ? "+" : "-"; };
  return fmt::format("{:<28} {:>5} {:>7} {:>5} {:>6} {:>5} {:>4} {:>9.4g} {:>7} {:>8} {:>10}\n",
                     speed.rung.name, sign(step.graph), sign(step.own_kernels),
                     sign(step.fused_norms), sign(step.merged_linears), sign(step.early_starts),
                     sign(speed.rung.int8), speed.seconds * 1e3,
                     before ? fmt::format("{:.3f}", before->seconds / speed.seconds) : "",
                     speed.launches ? std::to_string(*speed.launches) : "-",
                     speed.perplexity ? fmt::format("{:.6g}", *speed.perplexity) : "-");
}

nlohmann::json ladder_json(const RungSpeed& speed) {
  const StepOptions& step = speed.rung.step;
  return {{"name", speed.rung.name},
          {"ladder", speed.rung.ladder},
          {"graph", step.graph},
          {"own_kernels", step.own_kernels},
          {"fused_norms", step.fused_norms},
          {"merged_linears", step.merged_linears},
          {"early_starts", step.early_starts},
          {"int8", speed.rung.int8},
          {"tpot_ms", speed.seconds * 1e3},
          {"launches", speed.launches ? nlohmann::json(*speed.launches) : nlohmann::json()},
          {"perplexity", speed.perplexity ? nlohmann::json(*speed.perplexity) : nlohmann::json()}};
}

}  // namespace seqfuse::serving
