// The verb table: finds the verb, loads the engine library if it needs tensors, maps errors to exit
// codes.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/names.h"
#include "cli/build_info.h"
#include "cli/verbs.h"

namespace seqfuse::cli {
namespace {

struct Entry {
  const char* name;
  Verb verb;  // null: in the engine library, under the C symbol below
  const char* symbol;
  const char* summary;
};

constexpr Entry kVerbs[] = {
    {"doctor", cmd_doctor, nullptr, "what this build and this machine have, and what is missing"},
    {"preprocess", cmd_preprocess, nullptr, "raw interaction logs to a dataset directory"},
    {"synthesize", cmd_synthesize, nullptr,
     "raw logs in a known dataset's format, any size, with planted preferences"},
    {"train", nullptr, "seqfuse_cmd_train", "train ranking | train retrieval"},
    {"evaluate", nullptr, "seqfuse_cmd_evaluate", "metrics of a run beside simple baselines"},
    {"report", cmd_report, nullptr, "runs as one HTML page: curves, metrics, configuration, data"},
    {"recommend", nullptr, "seqfuse_cmd_recommend",
     "top-K items for a user, a history or all users"},
    {"similar", nullptr, "seqfuse_cmd_similar", "the items that are most like an item"},
    {"export", nullptr, "seqfuse_cmd_export",
     "vectors of items or users as Parquet or NumPy files"},
    {"generate", nullptr, "seqfuse_cmd_generate", "continue prompts with a GPT-NeoX model"},
    {"perplexity", nullptr, "seqfuse_cmd_perplexity", "how well a GPT-NeoX model predicts a text"},
    {"encode", nullptr, "seqfuse_cmd_encode", "vectors of sentences by a BERT encoder"},
    {"certify", nullptr, "seqfuse_cmd_certify",
     "how far embeddings may move before a BERT classifier changes its mind"},
    {"tune", nullptr, "seqfuse_cmd_tune", "the fastest fusion of a BERT's operators, as a plan"},
    {"mask", cmd_mask, nullptr, "mask show: draws an attention mask and counts its blocks"},
    {"scheme", cmd_scheme, nullptr,
     "which operators of a BERT layer a fusion scheme joins, and what is legal"},
    {"predict", cmd_predict, nullptr, "how long a fusion scheme takes, learned from measured ones"},
    {"bench", nullptr, "seqfuse_cmd_bench",
     "bench decode: how fast a GPT-NeoX model generates; bench sparsity: a BERT's attention"},
};

void print_help() {
  fmt::print(
      "seqfuse {}: trains HSTU generative recommenders from raw interaction logs\n\n"
      "usage: seqfuse VERB [options]     seqfuse VERB --help\n\n",
      kVersion);
  for (const Entry& entry : kVerbs) fmt::print("  {:<11} {}\n", entry.name, entry.summary);
  fmt::print(
      "\nStart here: make demo, or docs/quickstart.md. Exit codes: 0 done, 1 failed, 2 usage.\n");
}

Verb load_from_engine(const char* symbol) {
  const auto binary = std::filesystem::read_symlink("/proc/self/exe");
  const auto library = binary.parent_path().parent_path() / "lib" / "libseqfuse_engine.so";
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    throw_error("cannot load the engine library: {}\n  `seqfuse doctor` lists what is missing",
                dlerror());
  }
  void* address = dlsym(handle, symbol);
  if (address == nullptr)
    throw_error("{} has no {}: rebuild with `make build`", library.string(), symbol);
  return reinterpret_cast<Verb>(address);
}

// Refuses a processor that lacks instructions of this build, since operators would crash.
void check_cpu() {
  const std::vector<std::string> missing = missing_features(this_cpu());
  if (missing.empty()) return;
  throw_error(
      "this binary was built for a processor with {}, which this one lacks\n"
      "  build it here with `make build`, or for any recent processor with "
      "`PRESET=portable make build`",
      fmt::join(missing, ", "));
}

// Accepts underscores in flag names: people type --dataset_name as often as --dataset-name.
std::string normalise_flag(std::string_view argument) {
  std::string result(argument);
  if (!argument.starts_with("--")) return result;
  for (size_t i = 2; i < result.size() && result[i] != '='; ++i) {
    if (result[i] == '_') result[i] = '-';
  }
  return result;
}

int run(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "--help";
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return argc > 1 ? 0 : 2;
  }
  if (name == "--version") {
    fmt::print("seqfuse {}\n", kVersion);
    return 0;
  }
  for (const Entry& entry : kVerbs) {
    if (name != entry.name) continue;
    std::vector<std::string> arguments;
    for (int i = 1; i < argc; ++i) arguments.push_back(normalise_flag(argv[i]));
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    if (entry.verb != cmd_doctor) check_cpu();
    const Verb verb = entry.verb != nullptr ? entry.verb : load_from_engine(entry.symbol);
    return verb(static_cast<int>(arguments.size()), pointers.data());
  }
  std::vector<std::string> names;
  for (const Entry& entry : kVerbs) names.emplace_back(entry.name);
  throw_error<UsageError>("unknown verb '{}'{}\n  `seqfuse --help` lists the verbs", name,
                          did_you_mean(name, names));
}

}  // namespace
}  // namespace seqfuse::cli

int main(int argc, char** argv) {
  try {
    return seqfuse::cli::run(argc, argv);
  } catch (const seqfuse::UsageError& error) {
    fmt::print(stderr, "seqfuse: {}\n", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "seqfuse: out of memory: make the batch, the windows or --memory-limit smaller\n");
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "seqfuse: {}\n", error.what());
    return 1;
  }
}
