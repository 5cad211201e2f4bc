// seqfuse certify MODEL: bounds of a BERT classifier's margins, and certified radii.
#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/progress.h"
#include "certify/bert_classifier.h"
#include "certify/forward.h"
#include "certify/margins.h"
#include "cli/certify_output.h"
#include "cli/command_line.h"
#include "cli/model_text.h"
#include "cli/sentence_input.h"
#include "cli/verbs.h"
#include "serving/decoding/memory_plan.h"
#include "training/device/device.h"
#include "training/loop/interrupt.h"
#include "training/loop/out_of_memory.h"

namespace seqfuse::cli {
namespace {

using certify::Method;
using certify::Norm;

const std::map<std::string, Norm> kNorms = {
    {"l1", Norm::l1}, {"l2", Norm::l2}, {"linf", Norm::linf}};
const std::map<std::string, Method> kMethods = {
    {"ibp", Method::ibp}, {"crown-baf", Method::crown_baf}, {"crown", Method::crown}};

struct CertifyFlags {
  std::string model, ids, ids_file, text_file, positions = "all", norm = "l2", method = "crown-baf",
                                               device = "auto", dtype = "float64";
  double eps = 0, tolerance = 1e-3;
  int64_t label = 0, together = 0;
  bool search = false, json = false;

  void add_to(CLI::App& app) {
    app.add_option("MODEL", model, "folder of a Hugging Face BertForSequenceClassification")
        ->required()
        ->check(kPath);
    auto* source = app.add_option_group("sentences", "one of these")->require_option(1);
    source->add_option("--ids", ids, "the ids of a sentence: 101,5,6,102");
    source->add_option("--ids-file", ids_file, "the ids of a sentence a line")->check(kPath);
    source->add_option("--text-file", text_file, "a sentence a line")->check(kPath);
    app.add_option("--positions", positions,
                   "tokens whose word embeddings move, from 0: 1,2, or all")
        ->capture_default_str();
    app.add_option("--norm", norm, "of the movement of each of them: l1, l2 or linf")
        ->check(CLI::IsMember({"l1", "l2", "linf"}))
        ->capture_default_str();
    auto* task = app.add_option_group("task", "one of these")->require_option(1);
    task->add_option("--eps", eps, "bound the margins within this radius");
    auto* searching = task->add_flag("--search", search, "the largest radius that is certified");
    app.add_option("--tolerance", tolerance, "of --search, relative")->capture_default_str();
    app.add_option("--radii-together", together,
                   "of --search: as a batch (default: 1; on a GPU up to 8)")
        ->check(whole_number(1))
        ->needs(searching);
    app.add_option("--method", method, "ibp: fast, loose; crown-baf; crown: slow, tight")
        ->check(CLI::IsMember({"ibp", "crown-baf", "crown"}))
        ->capture_default_str();
    app.add_option("--label", label, "the class that must win (default: the predicted one)")
        ->check(whole_number(0));
    app.add_option("--dtype", dtype, "float64, or float32: less memory, smaller radii")
        ->check(CLI::IsMember({"float32", "float64"}))
        ->capture_default_str();
    add_device_option(app, device);
    app.add_flag("--json", json, "a line of JSON for each sentence");
  }

  void check() const {
    SEQFUSE_CHECK_AS(UsageError, std::isfinite(eps) && eps >= 0,
                     "--eps is {}; expected a radius of 0 or more", eps);
    SEQFUSE_CHECK_AS(UsageError, tolerance > 0 && tolerance < 1,
                     "--tolerance is {}; expected a number between 0 and 1", tolerance);
    SEQFUSE_CHECK_AS(UsageError, ids.find_first_not_of("0123456789,") == std::string::npos,
                     "--ids is '{}'; expected ids such as 101,5,6,102, or use --ids-file", ids);
  }
};

// The given positions of a sentence. Throws UsageError.
std::vector<int64_t> positions_of(const std::string& given, int64_t tokens, int64_t line) {
  std::vector<int64_t> positions;
  if (given == "all") {
    positions.resize(static_cast<size_t>(tokens));
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }
  for (size_t begin = 0; begin <= given.size();) {
    const size_t end = std::min(given.find(',', begin), given.size());
    int64_t position = -1;
    const auto [stop, error] = std::from_chars(given.data() + begin, given.data() + end, position);
    SEQFUSE_CHECK_AS(UsageError, error == std::errc() && stop == given.data() + end,
                     "--positions is '{}'; expected numbers such as 1,2, or all", given);
    SEQFUSE_CHECK_AS(
        UsageError, position >= 0 && position < tokens,
        "--positions: there is no position {} in the sentence of line {}; its {} tokens "
        "are 0 to {}",
        position, line, tokens, tokens - 1);
    positions.push_back(position);
    begin = end + 1;
  }
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

class SentenceCertifier {
 public:
  SentenceCertifier(const CertifyFlags& flags, const certify::BertClassifier& classifier,
                    at::Device device, const training::InterruptGuard& interrupt)
      : flags_(flags),
        classifier_(classifier),
        device_(device),
        interrupt_(interrupt),
        options_{.method = kMethods.at(flags.method)} {
    if (device.is_cuda()) options_.block_bytes = int64_t{1} << 31;
  }

  // Nothing after an interruption.
  std::optional<CertifiedSentence> certify(const std::vector<int64_t>& ids, int64_t line) {
    const auto start = std::chrono::steady_clock::now();
    CertifiedSentence result;
    result.line = line;
    result.tokens = std::ssize(ids);
    result.positions = positions_of(flags_.positions, result.tokens, line);
    const certify::Graph graph = classifier_.graph(result.tokens);
    const at::Tensor center = classifier_.embeddings(ids).unsqueeze(0);
    const at::Tensor logits = graph.evaluate(center).flatten().cpu().to(at::kDouble);
    result.logits.assign(logits.data_ptr<double>(), logits.data_ptr<double>() + logits.numel());
    result.predicted = logits.argmax().item<int64_t>();
    result.label = flags_.label >= 0 ? flags_.label : result.predicted;
    const int64_t fits = fitting_radii(graph, center, result);
    double radius = flags_.eps;
    if (flags_.search) {
      const auto found = search(graph, center, result, fits);
      if (!found) return std::nullopt;
      result.radius = radius = found->certified;
      result.not_certified = found->not_certified;
      result.tried = found->tried;
    }
    const certify::Margins margins = at_radii(graph, center, result, {radius});
    const auto row = [](const at::Tensor& x) {
      const at::Tensor first = x[0].contiguous();
      return std::vector<double>(first.data_ptr<double>(),
                                 first.data_ptr<double>() + first.numel());
    };
    result.lower = row(margins.lower);
    result.upper = row(margins.upper);
    result.smallest_lower = certify::smallest_margins(margins, {result.label}).front();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    result.seconds = seconds.count();
    return result;
  }

 private:
  certify::Ball ball(const at::Tensor& center, const CertifiedSentence& sentence,
                     const std::vector<double>& radii) const {
    return {.center = center.expand({static_cast<int64_t>(radii.size()), -1, -1}),
            .positions = sentence.positions,
            .norm = kNorms.at(flags_.norm),
            .eps = radii};
  }

  certify::Margins at_radii(const certify::Graph& graph, const at::Tensor& center,
                            const CertifiedSentence& sentence,
                            const std::vector<double>& radii) const {
    try {
      return certify::margins(graph, ball(center, sentence, radii),
                              std::vector<int64_t>(radii.size(), sentence.label), options_);
    } catch (const std::exception& error) {
      if (!training::is_out_of_memory(error)) throw;
      refuse_memory(sentence, training::message_of(error));
    }
  }

  [[noreturn]] void refuse_memory(const CertifiedSentence& sentence, const std::string& why) const {
    const std::string less = options_.method == Method::ibp ? "shorter sentences need less"
                             : options_.method == Method::crown
                                 ? "--method ibp and shorter sentences need less"
                                 : "--method ibp needs far less, --method crown works in blocks "
                                   "and is slower, and fewer "
                                   "--positions need less";
    throw_error("out of memory: {} for the sentence of line {} ({} tokens, {} positions): {}; {}",
                flags_.method, sentence.line, sentence.tokens, sentence.positions.size(), why,
                less);
  }

  std::optional<certify::Radius> search(const certify::Graph& graph, const at::Tensor& center,
                                        const CertifiedSentence& sentence, int64_t fits) const {
    // On a GPU small problems wait for their launches: as a batch they take hardly longer than one.
    constexpr int64_t kBatchBytes = int64_t{1} << 28;
    int64_t wanted = flags_.together;
    if (wanted == 0) {
      const int64_t bytes = certify::forward_bytes(graph, ball(center, sentence, {0.0}));
      wanted = device_.is_cuda() ? std::clamp<int64_t>(kBatchBytes / bytes, 1, 8) : 1;
    }
    const certify::SearchOptions options{.tolerance = flags_.tolerance,
                                         .together = std::min(wanted, fits)};
    return certify::largest_radius(
        [&](const std::vector<double>& radii) {
          return certify::smallest_margins(at_radii(graph, center, sentence, radii),
                                           std::vector<int64_t>(radii.size(), sentence.label));
        },
        options, [&] { return interrupt_.signal() == 0; });
  }

  // How many radii fit into memory as a batch. Refuses where not even one fits.
  int64_t fitting_radii(const certify::Graph& graph, const at::Tensor& center,
                        const CertifiedSentence& sentence) const {
    constexpr int64_t kAnyNumber = 1 << 20;
    if (options_.method != Method::crown_baf) return kAnyNumber;
    const auto available = serving::available_memory(device_);
    if (!available) return kAnyNumber;
    const int64_t needed = certify::forward_bytes(graph, ball(center, sentence, {0.0}));
    if (needed <= *available) return *available / needed;
    refuse_memory(sentence, fmt::format("it needs about {}B, and {}B are free",
                                        format_count(static_cast<double>(needed)),
                                        format_count(static_cast<double>(*available))));
  }

  const CertifyFlags& flags_;
  const certify::BertClassifier& classifier_;
  at::Device device_;
  const training::InterruptGuard& interrupt_;
  certify::MarginOptions options_;
};

}  // namespace

int cmd_certify(int argc, char** argv) {
  CertifyFlags flags;
  CLI::App app(
      "Sound bounds of a BERT classifier's margins while word embeddings move within a ball.",
      "certify");
  flags.add_to(app);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;
  flags.check();
  if (app.count("--label") == 0) flags.label = -1;

  const auto config = models::bert::load_config(flags.model);
  std::optional<TextAccess> access;
  if (!flags.text_file.empty()) access = open_text(flags.model, config.vocab_size);
  SentenceInput input =
      access ? SentenceInput::of_text_file(flags.text_file, needed_text(*access, "--text-file"))
             : SentenceInput::of_ids(flags.ids.empty() ? flags.ids_file : flags.ids,
                                     config.vocab_size);
  const SentenceLimits limits{.most_tokens = config.max_position_embeddings,
                              .truncate = false,
                              .advice = "the model takes no more; shorten it"};

  const at::Device device = training::choose_device(flags.device, /*required_sm=*/"");
  const at::ScalarType dtype = flags.dtype == "float32" ? at::kFloat : at::kDouble;
  at::globalContext().setAllowTF32CuBLAS(false);  // the bounds count on float32 products
  const auto classifier =
      certify::BertClassifier::load(flags.model, at::TensorOptions(device).dtype(dtype));
  SEQFUSE_CHECK_AS(UsageError, flags.label < classifier.classes(),
                   "--label is {}; the model's classes are 0 to {}", flags.label,
                   classifier.classes() - 1);
  const CertifyRequest request{.norm = flags.norm,
                               .method = flags.method,
                               .dtype = std::string(c10::getDtypeNames(dtype).first),
                               .device = device.str(),
                               .eps = flags.search ? std::nullopt : std::optional(flags.eps)};

  const training::InterruptGuard interrupt;
  SentenceCertifier certifier(flags, classifier, device, interrupt);
  Progress progress("certify", "sentences", input.count());
  for (int64_t i = 0; i < input.count(); ++i) {
    const auto result = interrupt.signal() != 0
                            ? std::nullopt
                            : certifier.certify(input.ids(i, i + 1, limits).front(), i + 1);
    if (!result) {
      log::warning("certify", "interrupted after {} of {} sentences", i, input.count());
      return 128 + interrupt.signal();
    }
    fmt::print("{}\n",
               flags.json ? certify_json(request, *result) : certify_text(request, *result));
    std::fflush(stdout);
    progress.update(i + 1);
  }
  return 0;
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_certify(int argc, char** argv) {
  return seqfuse::cli::cmd_certify(argc, argv);
}
