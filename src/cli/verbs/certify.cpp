// seqfuse certify MODEL: bounds of a BERT classifier's margins, and certified radii.
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <list>
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
#include "certify/radius.h"
#include "certify/recorded_margins.h"
#include "cli/certify_output.h"
#include "cli/command_line.h"
#include "cli/model_text.h"
#include "cli/sentence_input.h"
#include "cli/verbs.h"
#include "serving/decoding/memory_plan.h"
#include "training/device/device.h"
#include "training/device/out_of_memory.h"
#include "training/loop/interrupt.h"

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

// A length of sentences: they share the graph and, on a GPU, recorded computations.
struct Length {
  int64_t tokens;
  std::vector<int64_t> positions;
  certify::Graph graph;
  certify::RecordedMargins margins;
  std::optional<int64_t> radii_that_fit;  // into memory, as a batch, before the first sentence

  Length(const certify::BertClassifier& classifier, int64_t tokens, std::vector<int64_t> moving,
         Norm norm, const certify::MarginOptions& options)
      : tokens(tokens),
        positions(std::move(moving)),
        graph(classifier.graph(tokens)),
        margins(graph, {.positions = positions, .norm = norm}, options) {}
};

// The margins of a sentence at one radius.
struct AtRadius {
  double radius = -1;
  std::vector<double> lower, upper;
  double smallest_lower = 0;
};

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
    Length& length = length_of(result);
    const at::Tensor center = classifier_.embeddings(ids);
    const at::Tensor logits =
        length.graph.evaluate(center.unsqueeze(0)).flatten().cpu().to(at::kDouble);
    result.logits.assign(logits.data_ptr<double>(), logits.data_ptr<double>() + logits.numel());
    result.predicted = logits.argmax().item<int64_t>();
    result.label = flags_.label >= 0 ? flags_.label : result.predicted;
    if (!length.radii_that_fit) length.radii_that_fit = fitting_radii(length, center, result);
    AtRadius best;
    if (flags_.search) {
      const auto found = search(length, center, result, best);
      if (!found) return std::nullopt;
      result.radius = found->certified;
      result.not_certified = found->not_certified;
      result.tried = found->tried;
    } else {
      best = at_radii(length, center, result, {flags_.eps}).front();
    }
    result.lower = best.lower;
    result.upper = best.upper;
    result.smallest_lower = best.smallest_lower;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    result.seconds = seconds.count();
    return result;
  }

 private:
  Length& length_of(const CertifiedSentence& sentence) {
    for (Length& length : lengths_) {
      if (length.tokens == sentence.tokens) return length;
    }
    constexpr size_t kMostLengths = 8;  // what is recorded for each keeps its memory
    if (lengths_.size() == kMostLengths) lengths_.pop_front();
    return lengths_.emplace_back(classifier_, sentence.tokens, sentence.positions,
                                 kNorms.at(flags_.norm), options_);
  }

  std::vector<AtRadius> at_radii(Length& length, const at::Tensor& center,
                                 const CertifiedSentence& sentence,
                                 const std::vector<double>& radii) const {
    try {
      const certify::Margins margins = length.margins.at_radii(center, radii, sentence.label);
      const std::vector<double> smallest =
          certify::smallest_margins(margins, std::vector<int64_t>(radii.size(), sentence.label));
      const auto row = [](const at::Tensor& x, size_t index) {
        const at::Tensor chosen = x[static_cast<int64_t>(index)].contiguous();
        return std::vector<double>(chosen.data_ptr<double>(),
                                   chosen.data_ptr<double>() + chosen.numel());
      };
      std::vector<AtRadius> result;
      for (size_t i = 0; i < radii.size(); ++i) {
        result.push_back({radii[i], row(margins.lower, i), row(margins.upper, i), smallest[i]});
      }
      return result;
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

  // best: the margins at the largest certified radius; at 0 if there is none.
  std::optional<certify::Radius> search(Length& length, const at::Tensor& center,
                                        const CertifiedSentence& sentence, AtRadius& best) const {
    // On a GPU small problems wait for their launches: as a batch they take hardly longer than one.
    constexpr int64_t kBatchBytes = int64_t{1} << 29;
    int64_t wanted = flags_.together;
    if (wanted == 0) {
      const int64_t bytes = bytes_of_a_radius(length, center);
      wanted = device_.is_cuda() ? std::clamp<int64_t>(kBatchBytes / bytes, 1, 8) : 1;
    }
    const certify::SearchOptions options{.tolerance = flags_.tolerance,
                                         .together = std::min(wanted, *length.radii_that_fit)};
    return certify::largest_radius(
        [&](const std::vector<double>& radii) {
          std::vector<double> smallest;
          for (AtRadius& at : at_radii(length, center, sentence, radii)) {
            smallest.push_back(at.smallest_lower);
            if (at.radius == 0 || (at.smallest_lower > 0 && at.radius > best.radius)) {
              best = std::move(at);
            }
          }
          return smallest;
        },
        options, [&] { return interrupt_.signal() == 0; });
  }

  int64_t bytes_of_a_radius(const Length& length, const at::Tensor& center) const {
    return certify::forward_bytes(length.graph, {.center = center.unsqueeze(0),
                                                 .positions = length.positions,
                                                 .norm = kNorms.at(flags_.norm),
                                                 .eps = {0.0}});
  }

  // The number of radii that fit into memory as a batch. Refuses if not even one does.
  int64_t fitting_radii(Length& length, const at::Tensor& center,
                        const CertifiedSentence& sentence) {
    constexpr int64_t kAnyNumber = 1 << 20;
    if (options_.method != Method::crown_baf) return kAnyNumber;
    const int64_t needed = bytes_of_a_radius(length, center);
    auto available = serving::available_memory(device_);
    if (available && needed > *available && device_.is_cuda()) {  // what other lengths keep
      lengths_.remove_if([&](const Length& other) { return &other != &length; });
      at::getDeviceAllocator(device_.type())->emptyCache();
      available = serving::available_memory(device_);
    }
    if (!available) return kAnyNumber;
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
  std::list<Length> lengths_;  // the last ones
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
