// Every parameter is read somewhere or reported as having no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "base/file.h"
#include "config/registry.h"
#include "config/without_effect.h"
#include "tests/minimal_config.h"
#include "tests/parameter_reads.h"
#include "tests/paths.h"

namespace seqfuse::config::config_unread_test {
namespace {
namespace fs = std::filesystem;
using test::ParameterReads;

ParameterReads::Classes all_parameters() {
  ParameterReads::Classes parameters;
  for (const ClassInfo& info : classes()) {
    for (const ParameterInfo& parameter : info.parameters) {
      parameters[info.name].insert(parameter.name);
    }
  }
  return parameters;
}

std::set<ParameterReads::Read> without_effect() {
  std::set<ParameterReads::Read> parameters;
  for (const WithoutEffect& each : parameters_without_effect()) {
    parameters.emplace(each.class_name, each.parameter);
  }
  return parameters;
}

// Of all sources except src/config, which only parses and prints.
std::set<ParameterReads::Read> all_reads(const ParameterReads::Classes& parameters) {
  const fs::path source = fs::path(test::source_directory()) / "src";
  std::vector<fs::path> files;
  ParameterReads reads(parameters);
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".h") reads.add_header(read_file(entry.path()));
    const bool parses = entry.path().string().find("/config/") != std::string::npos;
    if (!parses && (ending == ".cpp" || ending == ".h")) files.push_back(entry.path());
  }
  std::set<ParameterReads::Read> found;
  for (const fs::path& file : files) {
    const fs::path header = fs::path(file).replace_extension(".h");
    const bool has_header = header != file && fs::exists(header);
    found.merge(reads.reads_of(read_file(file), has_header ? read_file(header) : ""));
  }
  return found;
}

TEST(ConfigUnread, EveryParameterIsReadOrSaidToBeWithoutEffect) {
  const ParameterReads::Classes parameters = all_parameters();
  const std::set<ParameterReads::Read> reads = all_reads(parameters), unread = without_effect();
  for (const auto& [name, names] : parameters) {
    for (const std::string& parameter : names) {
      const bool read = reads.contains({name, parameter});
      EXPECT_EQ(read, !unread.contains({name, parameter}))
          << name << "." << parameter << (read ? " is read" : " is never read");
    }
  }
}

// The scan tells classes apart, else the test above would count any x.seed as a read of TrainerArgs.seed.
TEST(ConfigUnread, ASameNamedMemberOfAnotherClassIsNoRead) {
  const ParameterReads::Classes parameters = {{"TrainerArgs", {"seed", "split"}},
                                              {"DatasetArgs", {"seed", "split"}}};
  ParameterReads reads(parameters);
  reads.add_header("struct Config { TrainerArgs trainer; std::optional<DatasetArgs> dataset; };");
  using Reads = std::set<ParameterReads::Read>;
  EXPECT_EQ(reads.reads_of("f(options.seed, trainer.seed, other.split);"), Reads());
  EXPECT_EQ(reads.reads_of("f(config.trainer.seed); g(config_->dataset->split);"),
            (Reads{{"TrainerArgs", "seed"}, {"DatasetArgs", "split"}}));
  EXPECT_EQ(reads.reads_of("void f(const config::TrainerArgs& args) { g(args.seed); }\n"
                           "void h(const config::DatasetArgs& args) { g(args.split); }"),
            (Reads{{"TrainerArgs", "seed"}, {"DatasetArgs", "split"}}));
  EXPECT_EQ(reads.reads_of("const auto& args = config.dataset; g(args->seed);"),
            (Reads{{"DatasetArgs", "seed"}}));
  EXPECT_EQ(reads.reads_of("void f(TrainerArgs args) {} auto args = other(); g(args.seed);"),
            Reads());
  EXPECT_EQ(reads.reads_of("g(args_.seed);", "class A { const DatasetArgs args_; };"),
            (Reads{{"DatasetArgs", "seed"}}));
  EXPECT_EQ(reads.reads_of("// config.trainer.seed\n f(\"config.trainer.seed\");"), Reads());
}

TEST(ConfigUnread, SettingsWithoutEffectAreNamedOnce) {
  const auto warning = [](const std::string& lines) {
    return warn_without_effect(load_config_text("t.gin", kMinimalConfig + lines).config);
  };
  EXPECT_EQ(warning("NetworkArgs.kernel_backend = 'cutlass'"), "");
  EXPECT_EQ(warning("NetworkArgs.embedding_backend = 'other'"),
            "no effect: NetworkArgs.embedding_backend (there is only one backend)");
}

TEST(ConfigUnread, NotesNameWhatTaskDataAndDeviceDoNotUse) {
  Config config = load_config_text("t.gin", kMinimalConfig).config;
  config.network.architecture = Architecture::hstu_research;
  EXPECT_THAT(notes_of_no_effect(config, {}), testing::IsEmpty());

  config.network.recompute_input_silu = true;
  config.network.dtype_str = ComputeType::bfloat16;
  config.dynamic_embeddings = {DynamicEmbeddingArgs{.table_name = "item", .caching = true}};
  EXPECT_THAT(notes_of_no_effect(config, {.is_on_gpu = true}), testing::IsEmpty());
  EXPECT_THAT(notes_of_no_effect(config, {.is_on_gpu = false}),
              testing::ElementsAre(testing::HasSubstr("DynamicEmbeddingArgs of table 'item'"),
                                   testing::HasSubstr("NetworkArgs.recompute_*")));

  config.network.architecture = Architecture::hstu;
  EXPECT_THAT(notes_of_no_effect(config, {.task = Task::retrieval, .is_on_gpu = true}),
              testing::ElementsAre(testing::HasSubstr("context is causal")));
}

}  // namespace
}  // namespace seqfuse::config::config_unread_test
