// seqfuse tune MODEL: searches for the fastest fusion of a BERT's operators, and writes it as a plan.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/gpu.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/build_info.h"
#include "cli/command_line.h"
#include "cli/encoder_dtype.h"
#include "cli/verbs.h"
#include "fusion/scheme_text.h"
#include "models/bert/plan.h"
#include "serving/tuning/program_bench.h"
#include "serving/tuning/recorded_timer.h"
#include "serving/tuning/serve_timings.h"
#include "serving/tuning/tuner.h"
#include "serving/tuning/worker_timer.h"
#include "training/device/device.h"
#include "training/loop/interrupt.h"
#include "tuning/database.h"
#include "tuning/training_data.h"

namespace seqfuse::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using serving::Strategy;

struct TuneFlags {
  std::string model, output = "plan.json", database = "tune.db", search = "boosted",
                     device = "auto", dtype = "auto", replay;
  std::vector<std::string> masks{"none"};
  int64_t batch = 0, seq = 0, budget = 0, seed = 1, limit = 60;
  double seconds = 0;
  bool resume = false, exhaustive = false, no_tiles = false, json = false, worker = false;

  void add_to(CLI::App& app) {
    app.add_option("MODEL", model, "folder of a Hugging Face BERT")->required()->check(kPath);
    app.add_option("--batch", batch, "sentences of a batch")->required()->check(whole_number(1));
    app.add_option("--seq", seq, "tokens of each sentence")->required()->check(whole_number(1));
    app.add_option("--mask", masks, "as for `seqfuse encode`; given twice: what both allow")
        ->allow_extra_args(false)
        ->capture_default_str();
    auto* programs = app.add_option("--budget", budget,
                                    "programs that are measured (default: 14, of 720;\n"
                                    "with --seconds: as many as there is time for)")
                         ->check(whole_number(1));
    app.add_option("--seconds", seconds, "all ends after them, once the default has been measured")
        ->check(CLI::PositiveNumber);
    auto* how = app.add_option("--search", search,
                               "boosted: a predictor proposes and learns; random; annealing")
                    ->check(CLI::IsMember({"boosted", "random", "annealing"}))
                    ->capture_default_str();
    app.add_flag("--exhaustive", exhaustive, "measure all legal programs")
        ->excludes(programs)
        ->excludes(how);
    app.add_option("--seed", seed, "of the search")->check(whole_number(0))->capture_default_str();
    app.add_flag("--no-tiles", no_tiles, "the scheme only, not the tiles of generated kernels");
    app.add_option("--database", database, "keeps all measurements; made if there is none")
        ->check(kPath)
        ->capture_default_str();
    app.add_flag("--resume", resume,
                 "do not measure again what the database has of this setting,\n"
                 "card, driver and version; it counts for --budget");
    app.add_option("--output", output, "the plan, for `seqfuse encode --plan`")
        ->check(kPath)
        ->capture_default_str();
    app.add_option("--limit", limit, "seconds for one measurement; one that hangs is ended")
        ->check(whole_number(1))
        ->capture_default_str();
    app.add_option("--dtype", dtype, "as for `seqfuse encode`")
        ->check(CLI::IsMember({"auto", "float32", "float64", "float16", "bfloat16"}));
    add_device_option(app, device);
    app.add_option("--replay", replay,
                   "no measurements: times of an exhaustive search, from its\n"
                   "database or CSV, for the encoder called MODEL; writes no plan")
        ->check(kPath);
    app.add_flag("--json", json, "print the result as JSON");
    app.add_flag("--worker", worker, "")->group("");  // the process that measures
  }

  serving::TuneOptions options() const {
    serving::TuneOptions options;
    options.strategy = exhaustive ? Strategy::exhaustive : serving::strategy_named(search);
    const auto all = static_cast<int64_t>(serving::legal_programs().size());
    if (budget > 0) {
      options.budget = budget;
    } else if (exhaustive || seconds > 0) {
      options.budget = all;
    }
    if (seconds > 0) options.seconds = seconds;
    options.seed = static_cast<uint64_t>(seed);
    options.tiles = !no_tiles;
    return options;
  }
};

// The driver's version, as the kernel module says it; else the CUDA version that it runs.
std::string driver_version() {
  const fs::path file = "/sys/module/nvidia/version";
  std::error_code error;
  if (!fs::exists(file, error)) return probe_gpus().driver_cuda;
  std::string version = read_file(file);
  while (!version.empty() && std::isspace(static_cast<unsigned char>(version.back())) != 0)
    version.pop_back();
  return version;
}

std::string joined_masks(const std::vector<std::string>& masks) {
  return fmt::format("{}", fmt::join(masks, "+"));
}

tuning::Setting setting_of(const TuneFlags& flags, const models::bert::Config& config,
                           const std::string& dtype) {
  fs::path folder = fs::absolute(flags.model).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();
  const std::string mask = joined_masks(flags.masks);
  return {.model = folder.filename().string(),
          .hidden = config.hidden_size,
          .heads = config.num_heads,
          .inner = config.intermediate_size,
          .layers = config.num_layers,
          .batch = flags.batch,
          .seq = flags.seq,
          .mask = mask,
          .mask_density = tuning::density_of(mask, flags.seq),
          .dtype = dtype};
}

int run_worker(const TuneFlags& flags) {
  log::set_level(log::Level::warning);
  const at::Device device = training::choose_device(flags.device, /*required_sm=*/"");
  const auto model = models::bert::Model::load(
      flags.model, encoder_dtype(flags.dtype, flags.model, device), device);
  serving::ProgramBench bench(model, flags.masks, flags.batch, flags.seq);
  serving::serve_timings(bench);
  return 0;
}

std::vector<std::string> worker_command(const TuneFlags& flags, const std::string& device,
                                        const std::string& dtype) {
  std::vector<std::string> command{fs::read_symlink("/proc/self/exe").string(),
                                   "tune",
                                   flags.model,
                                   "--worker",
                                   "--batch",
                                   std::to_string(flags.batch),
                                   "--seq",
                                   std::to_string(flags.seq),
                                   "--device",
                                   device,
                                   "--dtype",
                                   dtype};
  for (const std::string& mask : flags.masks) command.insert(command.end(), {"--mask", mask});
  return command;
}

// The best scheme that a search finds among recorded times, and how much slower it is than the fastest.
int replay(const TuneFlags& flags, const serving::TuneOptions& options) {
  const tuning::Selection selection{.model = flags.model,
                                    .mask = joined_masks(flags.masks),
                                    .dtype = {},
                                    .batch = flags.batch,
                                    .seq = flags.seq};
  std::vector<tuning::Measurement> selected;
  for (tuning::Measurement& m : tuning::read_measurements(flags.replay)) {
    if (!selection.takes(m.setting)) continue;
    if (!selected.empty() && (m.setting != selected[0].setting || m.origin != selected[0].origin))
      continue;
    selected.push_back(std::move(m));
  }
  serving::RecordedTimer timer(selected);
  SEQFUSE_CHECK_AS(UsageError, timer.programs() > 0,
                   "--replay {}: no times of {} ({}, {}) {}; `seqfuse report` lists what it has",
                   flags.replay, flags.model, flags.batch, flags.seq, *selection.mask);
  const tuning::Setting setting = selected[0].setting;
  const tuning::Origin origin = selected[0].origin;
  serving::Tuner tuner(timer, setting, origin, options, {}, [](const auto&) {}, [](auto...) {});
  const serving::TuneResult result = tuner.run();
  SEQFUSE_CHECK(result.scheme != 0, "--replay {}: none of {} proposals is recorded", flags.replay,
                options.budget);
  const int64_t fastest = timer.fastest();
  const double regret = result.milliseconds / timer.milliseconds(fastest) - 1;
  if (flags.json) {
    fmt::print("{}\n", json({{"setting", tuning::printed(setting)},
                             {"origin", tuning::printed(origin)},
                             {"search", serving::name_of(options.strategy)},
                             {"seed", options.seed},
                             {"programs", result.programs},
                             {"recorded", timer.programs()},
                             {"scheme", result.scheme},
                             {"milliseconds", result.milliseconds},
                             {"fastest_scheme", fastest},
                             {"fastest_milliseconds", timer.milliseconds(fastest)},
                             {"regret", regret}})
                           .dump(-1, ' ', false, json::error_handler_t::replace));
    return 0;
  }
  fmt::print(
      "{}, {}\n{} seed {}: {} of {} programs, scheme {}, {:.4g} ms; the fastest is {}, {:.4g} "
      "ms: {:.2f} % slower\n",
      tuning::printed(setting), tuning::printed(origin), serving::name_of(options.strategy),
      options.seed, result.programs, timer.programs(), result.scheme, result.milliseconds, fastest,
      timer.milliseconds(fastest), 100 * regret);
  return 0;
}

models::bert::Plan plan_of(const serving::TuneResult& result, const tuning::Setting& setting,
                           const tuning::Origin& origin, const models::bert::Config& config) {
  return {.hidden = setting.hidden,
          .heads = setting.heads,
          .inner = setting.inner,
          .layers = setting.layers,
          .activation = models::bert::name_of(config.activation),
          .batch = setting.batch,
          .seq = setting.seq,
          .mask = setting.mask,
          .dtype = setting.dtype,
          .card = origin.card,
          .scheme = result.scheme,
          .choices = result.choices,
          .milliseconds = result.milliseconds,
          .default_milliseconds = result.default_milliseconds.value_or(0),
          .version = origin.version,
          .date = tuning::now_as_date()};
}

struct SumErrors {
  double median = 0, largest = 0;  // of their sizes
};

std::optional<SumErrors> sizes_of(std::vector<double> errors) {
  if (errors.empty()) return std::nullopt;
  for (double& error : errors) error = std::abs(error);
  std::sort(errors.begin(), errors.end());
  return SumErrors{errors[errors.size() / 2], errors.back()};
}

void print_best(const TuneFlags& flags, const serving::TuneResult& result, double seconds) {
  const auto sums = sizes_of(result.sum_errors);
  if (flags.json) {
    json report = {{"output", flags.output},
                   {"scheme", result.scheme},
                   {"choices", result.choices},
                   {"milliseconds", result.milliseconds},
                   {"default_milliseconds", nullptr},
                   {"programs", result.programs},
                   {"segments", result.segments},
                   {"reused", result.reused},
                   {"wrong", result.wrong},
                   {"failed", result.failed},
                   {"timeout", result.timeout},
                   {"stopped", result.stopped},
                   {"out_of_time", result.out_of_time},
                   {"confirmed", result.confirmed},
                   {"seconds", seconds},
                   {"sum_error_median", nullptr},
                   {"sum_error_largest", nullptr}};
    if (result.default_milliseconds) report["default_milliseconds"] = *result.default_milliseconds;
    if (sums) {
      report["sum_error_median"] = sums->median;
      report["sum_error_largest"] = sums->largest;
    }
    fmt::print("{}\n", report.dump(-1, ' ', false, json::error_handler_t::replace));
    return;
  }
  const auto scheme = fusion::Scheme::from_number(result.scheme);
  fmt::print("{}: scheme {}, {:.4g} ms", flags.output, result.scheme, result.milliseconds);
  if (result.default_milliseconds) {
    fmt::print(", {:.3f} times as fast as the default ({:.4g} ms)",
               *result.default_milliseconds / result.milliseconds, *result.default_milliseconds);
  }
  fmt::print("\n{}\n", fusion::drawn(scheme));
  for (const auto& [segment, choice] : result.choices) fmt::print("  {}: {}\n", segment, choice);
  fmt::print(
      "{} programs and {} segments measured in {}, {} measurements reused; {} wrong, {} "
      "failed, {} too slow\n",
      result.programs, result.segments, format_duration(seconds), result.reused, result.wrong,
      result.failed, result.timeout);
  if (result.out_of_time) fmt::print("time was out before all was measured\n");
  if (!result.confirmed)
    fmt::print("not measured once more beside the default: the search ended before\n");
  if (sums) {
    fmt::print(
        "times of segments add up to those of programs to {:.1f} % (median; at worst {:.1f} "
        "%)\n",
        100 * sums->median, 100 * sums->largest);
  }
}

}  // namespace

int cmd_tune(int argc, char** argv) {
  TuneFlags flags;
  CLI::App app(
      "Searches for the fastest way to fuse the operators of a BERT's layers, for one shape, mask\n"
      "and card. Each program is checked before it is timed, in a process of its own.",
      "tune");
  flags.add_to(app);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;
  if (flags.worker) return run_worker(flags);

  const serving::TuneOptions options = flags.options();
  masks::SequenceMask::parse(flags.masks);
  if (!flags.replay.empty()) return replay(flags, options);
  const auto config = models::bert::load_config(flags.model);
  SEQFUSE_CHECK_AS(UsageError, flags.seq <= config.max_position_embeddings,
                   "--seq is {}; this model takes at most {} tokens", flags.seq,
                   config.max_position_embeddings);
  const fs::path folder = fs::absolute(flags.output).parent_path();
  SEQFUSE_CHECK_AS(IoError, fs::is_directory(folder), "--output {}: there is no folder {}",
                   flags.output, folder.string());
  const at::Device device = training::choose_device(flags.device, /*required_sm=*/"");
  const std::string dtype =
      c10::getDtypeNames(encoder_dtype(flags.dtype, flags.model, device)).first;
  const tuning::Setting setting = setting_of(flags, config, dtype);
  const tuning::Origin origin{.card = models::bert::card_of(device),
                              .driver = device.is_cpu() ? "" : driver_version(),
                              .version = kVersion};
  tuning::Database database(flags.database, tuning::Database::Access::write);
  std::vector<tuning::Measurement> known;
  if (flags.resume) known = database.measurements({.setting = setting, .origin = origin});

  const training::InterruptGuard interrupt;
  const serving::Tuner* running = nullptr;
  serving::WorkerTimer timer(
      worker_command(flags, device.is_cpu() ? "cpu" : "cuda", dtype),
      {.start = std::chrono::seconds(300 + flags.limit),
       .answer = std::chrono::seconds(flags.limit)},
      [&] { return interrupt.signal() != 0 || (running != nullptr && running->past_deadline()); });
  const auto start = std::chrono::steady_clock::now();
  serving::Tuner tuner(
      timer, setting, origin, options, std::move(known),
      [&](const tuning::Measurement& measurement) { database.add(measurement); },
      [](int64_t done, int64_t of, const std::string& detail) {
        log::info("tune", "{}/{}: {}", done, of, detail);
      });
  running = &tuner;
  const serving::TuneResult result = tuner.run();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (result.scheme != 0) {
    models::bert::save_plan(plan_of(result, setting, origin, config), flags.output);
    print_best(flags, result, seconds.count());
  }
  if (result.stopped) {
    log::warning("tune", "interrupted; {} has all measurements, and --resume goes on",
                 flags.database);
    return 128 + interrupt.signal();
  }
  SEQFUSE_CHECK(result.scheme != 0,
                "tune: no program could be measured: {} were wrong, {} failed, {} took longer than "
                "{} s; {} says of each what happened",
                result.wrong, result.failed, result.timeout, flags.limit, flags.database);
  return 0;
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_tune(int argc, char** argv) {
  return seqfuse::cli::cmd_tune(argc, argv);
}
