// seqfuse doctor: reports what this build and this machine have, what is missing and how to get it.
#include <arrow/config.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/gpu.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "cli/build_info.h"
#include "cli/command_line.h"
#include "cli/verbs.h"

namespace seqfuse::cli {
namespace {
namespace fs = std::filesystem;

struct Report {
  nlohmann::json facts = nlohmann::json::object();
  std::vector<std::string> lines;     // for people
  std::vector<std::string> problems;  // each makes the exit code 1
  std::vector<std::string> advice;    // optional improvements, and how to get them

  void add(std::string_view section, const std::string& key, const nlohmann::json& value,
           const std::string& text) {
    std::string field = key;
    std::replace(field.begin(), field.end(), ' ', '_');
    facts[std::string(section)][field] = value;
    lines.push_back(fmt::format("{:<8} {:<13} {}", section, key, text));
  }
};

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

void report_build(Report& report) {
  const std::string torch = kTorchVersion, nvcc = kCudaCompiler;
  report.add("build", "seqfuse", kVersion, fmt::format("{} ({})", kVersion, kBuildType));
  report.add("build", "compiler", kCompiler, kCompiler);
  report.add("build", "arrow", arrow::GetBuildInfo().version_string,
             arrow::GetBuildInfo().version_string);
  const bool engine = fs::exists(fs::read_symlink("/proc/self/exe").parent_path().parent_path() /
                                 "lib" / "libseqfuse_engine.so");
  if (torch.empty() || !engine) {
    report.add("build", "torch", nullptr, "none: only preprocess and synthesize work");
    report.advice.emplace_back(
        "train, evaluate and recommend need libtorch: `make setup`, then `make build`");
  } else {
    report.add("build", "torch", torch, torch);
  }
  if (nvcc.empty()) {
    report.add("build", "cuda", nullptr, "none: a CPU-only build");
    report.advice.emplace_back(
        "CUDA kernels need nvcc: `apt-get install cuda-toolkit-13-0` from NVIDIA's repository, "
        "then `make build`");
  } else {
    report.add("build", "cuda", nvcc, fmt::format("{}, kernels for {}", nvcc, kCudaTargets));
    report.facts["build"]["cuda_targets"] = kCudaTargets;
  }
}

void report_processes(Report& report) {
  const auto there = [](std::string_view directory) {
    return !directory.empty() && !directory.ends_with("NOTFOUND");
  };
  std::vector<std::string> backends;
  if (there(kGloo)) backends.emplace_back("gloo");
  if (there(kGloo) && there(kNccl)) backends.emplace_back("nccl");
  report.add(
      "build", "processes", backends,
      backends.empty() ? "one" : fmt::format("several, by {}", fmt::join(backends, " and ")));
  if (backends.empty()) {
    report.advice.emplace_back(
        "training on several processes needs Gloo's headers: `apt-get install libgloo-dev`, then "
        "`make build`");
  }
}

void report_tokenizer(Report& report) {
  const bool there = std::string_view(kTokenizer) == "ON";
  report.add("build", "tokenizer", there, there ? "yes" : "none: language models take tokens only");
  if (!there) {
    report.advice.emplace_back(
        "text for generate and perplexity needs PCRE2 and utf8proc: `apt-get install libpcre2-dev "
        "libutf8proc-dev`, then `make build`");
  }
}

void report_cpu(Report& report) {
  const Cpu cpu = this_cpu();
  std::vector<std::string> vector_features;
  for (const std::string& feature : cpu.features) {
    if (feature.starts_with("avx") || feature.starts_with("amx") || feature == "fma" ||
        feature == "sse4_2") {
      vector_features.push_back(feature);
    }
  }
  report.add("cpu", "model", cpu.model, cpu.model);
  report.add("cpu", "cores", num_threads(),
             fmt::format("{} usable of {}", num_threads(), std::thread::hardware_concurrency()));
  report.add("cpu", "features", vector_features,
             fmt::format("{}", fmt::join(vector_features, " ")));
  report.facts["cpu"]["needed_features"] = built_for_features();
  const std::vector<std::string> missing = missing_features(cpu);
  report.facts["cpu"]["missing_features"] = missing;
  if (missing.empty()) {
    report.add("cpu", "built for", kCpuArch, fmt::format("{} - OK", kCpuArch));
  } else {
    report.add("cpu", "built for", kCpuArch, fmt::format("{} - ERROR", kCpuArch));
    report.problems.push_back(
        fmt::format("the processor lacks {}, which this build uses: `make build` here, or "
                    "`PRESET=portable make build`",
                    fmt::join(missing, ", ")));
  }
}

void report_memory_and_disk(Report& report) {
  const int64_t total = total_host_memory().value_or(0);
  const int64_t available = available_host_memory().value_or(0);
  report.add("memory", "total", total, gibibytes(total));
  report.add("memory", "available", available, gibibytes(available));
  std::error_code error;
  const fs::space_info space = fs::space(".", error);
  if (!error) {
    const auto free = static_cast<int64_t>(space.available);
    report.add("disk", "free here", free, gibibytes(free));
  }
}

void report_gpus(Report& report, const std::optional<std::string>& required_sm) {
  const GpuProbe probe = probe_gpus();
  report.facts["gpus"] = nlohmann::json::array();
  report.facts["driver_cuda"] = probe.driver_cuda;
  if (!probe.driver_cuda.empty()) {
    report.lines.push_back(
        fmt::format("{:<8} {:<13} runs CUDA up to {}", "gpu", "driver", probe.driver_cuda));
  }
  if (probe.gpus.empty()) {
    report.lines.push_back(
        fmt::format("[GPU Check] No GPU: {}; the CPU operators are used", probe.absence));
    if (required_sm) {
      report.problems.push_back(
          fmt::format("--require-sm {}: there is no GPU ({})", *required_sm, probe.absence));
    }
    return;
  }
  for (const Gpu& gpu : probe.gpus) {
    const GpuCheck check = check_gpu(gpu, required_sm);
    report.facts["gpus"].push_back({{"name", gpu.name},
                                    {"sm", fmt::format("{}.{}", gpu.major, gpu.minor)},
                                    {"memory_bytes", gpu.memory_bytes},
                                    {"ok", check.ok}});
    report.lines.push_back(check.line);
    if (!check.ok) report.problems.push_back(check.line);
  }
}

void print(const Report& report) {
  for (const std::string& line : report.lines) fmt::print("{}\n", line);
  for (const std::string& line : report.advice) fmt::print("to get more: {}\n", line);
  for (const std::string& line : report.problems) fmt::print("problem: {}\n", line);
  fmt::print("{}\n", report.problems.empty() ? "all is well" : "not ready: see the problems above");
}

}  // namespace

int cmd_doctor(int argc, char** argv) {
  bool json = false;
  std::optional<std::string> required_sm;
  CLI::App app("Reports what this build and this machine have, and what is missing.", "doctor");
  app.add_flag("--json", json, "print JSON");
  app.add_option("--require-sm", required_sm,
                 "accept only GPUs of this compute capability, such as 8.0");
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  Report report;
  report_build(report);
  report_processes(report);
  report_tokenizer(report);
  report_cpu(report);
  report_memory_and_disk(report);
  report_gpus(report, required_sm);
  if (json) {
    report.facts["problems"] = report.problems;
    report.facts["advice"] = report.advice;
    fmt::print("{}\n", report.facts.dump(2));
  } else {
    print(report);
  }
  return report.problems.empty() ? 0 : 1;
}

}  // namespace seqfuse::cli
