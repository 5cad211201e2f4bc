// Checkpoints: they round-trip, damage is named, failure leaves the older ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "tests/models/format1_checkpoint.h"
#include "tests/models/model_fixtures.h"
#include "tests/temporary_directory.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/model_spec_json.h"
#include "training/checkpoint/run_directory.h"
#include "training/checkpoint/table_files.h"
#include "training/checkpoint/weights.h"

namespace seqfuse::training::checkpoint_files_test {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

Checkpoint example(int64_t step) {
  torch::manual_seed(step);
  Checkpoint checkpoint{.step = step};
  checkpoint.dense = {{"w", torch::randn({3, 4})}, {"b", torch::randn({4}, torch::kDouble)}};
  checkpoint.tables["item"] = {.ids = {}, .rows = torch::randn({7, 2}), .state = {}};
  checkpoint.tables["user_id"] = {
      .ids = torch::tensor({int64_t{5}, int64_t{-1}, std::numeric_limits<int64_t>::max()}),
      .rows = torch::randn({3, 2}),
      .state = {{"exp_avg", torch::randn({3, 2})}, {"sum_sq", torch::randn({3})}}};
  checkpoint.optimizer = {{"w.exp_avg", torch::randn({3, 4})}, {"step", torch::tensor(step)}};
  checkpoint.state = {{"epoch", 3}, {"loss", 0.1}};
  return checkpoint;
}

void expect_equal(const TensorMap& a, const TensorMap& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    EXPECT_EQ(tensor.dtype(), b.at(name).dtype()) << name;
    EXPECT_TRUE(tensor.equal(b.at(name))) << name;
  }
}

void expect_equal(const TableMap& a, const TableMap& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, table] : a) {
    const embeddings::TableContents& other = b.at(name);
    ASSERT_EQ(table.ids.defined(), other.ids.defined()) << name;
    if (table.ids.defined()) {
      EXPECT_TRUE(table.ids.equal(other.ids)) << name;
    }
    EXPECT_TRUE(table.rows.equal(other.rows)) << name;
    expect_equal(table.state, other.state);
  }
}

std::string data_error(const fs::path& directory) {
  try {
    load_checkpoint(directory);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no DataError";
}

TEST(Safetensors, EveryDtypeAndShapeComesBack) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "x.safetensors";
  const TensorMap tensors = {{"f64", torch::randn({2, 3}, torch::kDouble)},
                             {"f32", torch::randn({5})},
                             {"f16", torch::randn({3}).to(torch::kHalf)},
                             {"bf16", torch::randn({3}).to(torch::kBFloat16)},
                             {"i64", torch::arange(4)},
                             {"i32", torch::arange(4, torch::kInt)},
                             {"i16", torch::arange(3, torch::kShort)},
                             {"i8", torch::arange(3, torch::kChar)},
                             {"u8", torch::arange(3, torch::kByte)},
                             {"bool", torch::ones({3}, torch::kBool)},
                             {"scalar", torch::tensor(2.5)},
                             {"empty", torch::empty({0, 4})},
                             {"transposed", torch::randn({3, 4}).t()}};
  save_tensors(file, tensors, {{"format", "pt"}});
  expect_equal(tensors, load_tensors(file));
}

TEST(Safetensors, FullDiskIsAnIoError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_THROW(save_tensors("/dev/full", {{"w", torch::ones({1000})}}), IoError);
}

TEST(Safetensors, EveryTruncationIsADataError) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "x.safetensors", cut = directory.path() / "cut";
  save_tensors(file, {{"w", torch::ones({3})}, {"b", torch::ones({2}, torch::kDouble)}});
  const std::string content = read_file(file);
  for (size_t length = 0; length < content.size(); ++length) {
    write_file_atomically(cut, content.substr(0, length));
    EXPECT_THROW(load_tensors(cut), DataError) << length << " bytes";
  }
}

TEST(Checkpoint, ComesBackWhole) {
  const TemporaryDirectory run;
  save_checkpoint(run.path(), example(12), 3);
  const auto newest = newest_checkpoint(run.path());
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->filename(), "step_12");
  const Checkpoint wanted = example(12), found = load_checkpoint(*newest);
  EXPECT_EQ(found.step, 12);
  EXPECT_EQ(found.state, wanted.state);
  expect_equal(wanted.dense, found.dense);
  expect_equal(wanted.tables, found.tables);
  expect_equal(wanted.optimizer, found.optimizer);
}

TEST(Checkpoint, KeepsTheNewest) {
  const TemporaryDirectory run;
  for (const int64_t step : {1, 2, 10, 9}) save_checkpoint(run.path(), example(step), 2);
  EXPECT_TRUE(fs::exists(run.path() / "checkpoints/step_9"));
  EXPECT_TRUE(fs::exists(run.path() / "checkpoints/step_10"));
  EXPECT_FALSE(fs::exists(run.path() / "checkpoints/step_2"));
  EXPECT_EQ(newest_checkpoint(run.path())->filename(), "step_10");
}

TEST(Checkpoint, AnUnfinishedOneIsNotTheNewest) {
  const TemporaryDirectory run;
  EXPECT_FALSE(newest_checkpoint(run.path()));
  save_checkpoint(run.path(), example(1), 3);
  fs::create_directories(run.path() / "checkpoints/step_2");
  fs::create_directories(run.path() / "checkpoints/step_3.tmp-99");
  EXPECT_EQ(newest_checkpoint(run.path())->filename(), "step_1");
  save_checkpoint(run.path(), example(4), 3);
  EXPECT_FALSE(fs::exists(run.path() / "checkpoints/step_3.tmp-99"));
}

TEST(Checkpoint, OneOfTheSameStepIsReplaced) {
  const TemporaryDirectory run;
  save_checkpoint(run.path(), example(5), 3);
  Checkpoint other = example(5);
  other.dense["w"] += 1;
  save_checkpoint(run.path(), other, 3);
  expect_equal(other.dense, load_checkpoint(*newest_checkpoint(run.path())).dense);
  EXPECT_EQ(std::distance(fs::directory_iterator(run.path() / "checkpoints"), {}), 1);
}

TEST(Checkpoint, AFlippedByteInAnyFileNamesTheFile) {
  const TemporaryDirectory run;
  const fs::path step = run.path() / "checkpoints/step_5";
  for (const char* name : {"dense.safetensors", "optimizer.safetensors", "tables/item.safetensors",
                           "tables/user_id.safetensors", "state.json"}) {
    save_checkpoint(run.path(), example(5), 3);
    std::string content = read_file(step / name);
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
    write_file_atomically(step / name, content);
    EXPECT_THAT(data_error(step), HasSubstr(name));
  }
}

TEST(Checkpoint, MissingAndTruncatedFilesAreNamed) {
  const TemporaryDirectory run;
  const fs::path step = run.path() / "checkpoints/step_5";
  for (const char* name : {"dense.safetensors", "tables/item.safetensors", "state.json"}) {
    save_checkpoint(run.path(), example(5), 3);
    fs::resize_file(step / name, fs::file_size(step / name) - 1);
    if (std::string(name) != "state.json") {  // whose last byte is a newline
      EXPECT_THAT(data_error(step), HasSubstr(name));
    }
    fs::remove(step / name);
    EXPECT_THAT(data_error(step), HasSubstr(name));
  }
}

TEST(Checkpoint, AFailedSaveLeavesTheOlderOnes) {
  const TemporaryDirectory run;
  save_checkpoint(run.path(), example(1), 1);
  Checkpoint large = example(2);
  large.dense["large"] = torch::ones({1 << 16});
  // No file may grow past 64 KiB, which looks to the writer like a full disk.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1 << 16, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(save_checkpoint(run.path(), large, 1), IoError);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::distance(fs::directory_iterator(run.path() / "checkpoints"), {}), 1);
  expect_equal(example(1).dense, load_checkpoint(*newest_checkpoint(run.path())).dense);
}

TEST(Checkpoint, FormatOneHadTheStateOfTablesAmongTheOptimisers) {
  const TemporaryDirectory run;
  Checkpoint wanted = example(3);
  wanted.tables["item"].state = {{"exp_avg", torch::randn({7, 2})}};
  wanted.tables["user_id"].ids.reset();
  save_as_format1(run.path(), wanted);
  const Checkpoint found = load_checkpoint(run.path());
  EXPECT_EQ(found.step, 3);
  EXPECT_EQ(found.state, wanted.state);
  expect_equal(wanted.dense, found.dense);
  expect_equal(wanted.optimizer, found.optimizer);
  expect_equal(wanted.tables, found.tables);
}

TEST(Checkpoint, ATensorOfAnotherTableIsRefused) {
  const embeddings::TableContents contents{
      .ids = {}, .rows = torch::ones({2, 2}), .state = {{"exp_avg", torch::ones({2, 2})}}};
  const TensorMap whole = to_tensors("item", contents);
  for (const char* strange : {"action", "item_id", "exp_avg"}) {
    TensorMap tensors = whole;
    tensors[strange] = torch::ones({2});
    EXPECT_THROW(to_contents("item", tensors, "item.safetensors"), DataError) << strange;
  }
  TensorMap no_rows = whole;
  no_rows.erase("item");
  EXPECT_THROW(to_contents("item", no_rows, "item.safetensors"), DataError);
  EXPECT_TRUE(to_contents("item", whole, "").state.contains("exp_avg"));
}

TEST(Checkpoint, AnotherFormatIsRefused) {
  const TemporaryDirectory run;
  EXPECT_THAT(data_error(run.path() / "nothing"), HasSubstr("state.json"));
  nlohmann::json state = {{"format", 99}};
  state["checksum"] = hash_text(state.dump());
  write_file_atomically(run.path() / "state.json", state.dump());
  EXPECT_THAT(data_error(run.path()), HasSubstr("format 99"));
}

struct Net : torch::nn::Module {
  explicit Net(int64_t rows, bool extra = false) {
    const auto draw = [](int64_t count) { return torch::randn({count, 2}); };
    table = embeddings::make_table("item", rows, draw, {});
    const auto tables = register_module("tables", std::make_shared<torch::nn::Module>());
    item = tables->register_parameter("item", table->weight());
    weight = register_parameter("weight", torch::randn({2, 2}));
    if (extra) register_parameter("bias", torch::randn({2}));
  }
  embeddings::Tables tables() const { return {table.get()}; }

  std::shared_ptr<embeddings::EmbeddingTable> table;  // contains item
  torch::Tensor item, weight;
};

TEST(Weights, TablesAreApartAndComeBack) {
  const Net source(5);
  Checkpoint checkpoint;
  collect_weights(source, source.tables(), checkpoint);
  EXPECT_EQ(checkpoint.tables.size(), 1U);
  EXPECT_TRUE(checkpoint.tables.contains("item"));
  EXPECT_TRUE(checkpoint.dense.contains("weight"));
  Net copy(5);
  load_weights(copy, copy.tables(), checkpoint);
  EXPECT_TRUE(copy.item.equal(source.item));
  EXPECT_TRUE(copy.weight.equal(source.weight));
}

TEST(Weights, AModelIsMadeFromThemAlone) {
  for (const char* architecture : {"hstu", "hstu_research"}) {
    const auto spec = models::hstu::ModelSpec::make(models::hstu::Task::retrieval,
                                                    models::hstu::small_config(architecture),
                                                    models::hstu::small_manifest());
    const auto source = models::hstu::make_retrieval_model(spec, 5);
    Checkpoint checkpoint;
    collect_weights(*source, source->tables(), checkpoint);
    const auto copy = models::hstu::make_retrieval_model(spec, std::nullopt);
    load_weights(*copy, copy->tables(), checkpoint);
    const auto expected = source->named_parameters();
    for (const auto& parameter : copy->named_parameters()) {
      EXPECT_TRUE(parameter.value().equal(expected[parameter.key()])) << parameter.key();
    }
    copy->eval();
    source->eval();
    const data::Batch batch = models::hstu::random_batch({7, 3});
    EXPECT_TRUE(copy->query(batch).equal(source->query(batch)));
  }
}

TEST(Weights, AnotherArchitectureOrVocabularyIsRefused) {
  Checkpoint checkpoint;
  const Net net(5);
  collect_weights(net, net.tables(), checkpoint);
  Net larger(6), more(5, true);
  EXPECT_THROW(load_weights(larger, larger.tables(), checkpoint), DataError);
  EXPECT_THROW(load_weights(more, more.tables(), checkpoint), DataError);
  Checkpoint with_bias;
  collect_weights(more, more.tables(), with_bias);
  Net fewer(5);
  EXPECT_THROW(load_weights(fewer, fewer.tables(), with_bias), DataError);
}

TEST(ModelSpecJson, ComesBackAndNamesWhatIsMissing) {
  models::hstu::ModelSpec spec;
  spec.task = models::hstu::Task::ranking;
  spec.network.num_layers = 3;
  spec.network.hidden_dropout = 0.1;
  spec.network.embedding_backend = "x";
  spec.ranking.prediction_head_arch = {512, 8};
  spec.ranking.label_threshold = 4;
  spec.retrieval.eval_metrics = {"HR@3"};
  spec.scaling_seqlen = 441;
  spec.context = {{"user_id", 10}, {"sex", 3}};
  spec.dataset_hash = "xxh3:1";
  const nlohmann::json object = to_json(spec);
  EXPECT_EQ(to_json(spec_from_json(object)), object);
  for (const auto& [name, value] : object.items()) {
    nlohmann::json without = object;
    without.erase(name);
    EXPECT_THROW(spec_from_json(without), DataError) << name;
  }
}

TEST(RunDirectory, MetricsAreCutToTheStepOfTheCheckpoint) {
  const TemporaryDirectory parent;
  const fs::path path = parent.path() / "run";
  const RunInfo info{.task = config::Task::ranking,
                     .dataset_path = "/d",
                     .dataset_hash = "h",
                     .seed = 5,
                     .version = "1"};
  RunDirectory run = RunDirectory::create(path, info, "A.b = 1\n", false);
  for (int step = 1; step <= 4; ++step) run.append_metrics({{"step", step}, {"loss", 1.0 / step}});
  std::ofstream(run.metrics_file(), std::ios::app) << "{\"step\": 5, \"lo";  // cut off by a crash
  RunDirectory again = RunDirectory::open(path);
  EXPECT_EQ(again.info().seed, 5U);
  EXPECT_EQ(again.info().task, config::Task::ranking);
  again.truncate_metrics_after(2);
  EXPECT_EQ(read_file(again.metrics_file()),
            "{\"loss\":1.0,\"step\":1}\n{\"loss\":0.5,\"step\":2}\n");
}

TEST(RunDirectory, LeftoversOfAKilledProcessAreNoObstacle) {
  const TemporaryDirectory parent;
  const fs::path path = parent.path() / "run";
  fs::create_directory(path);
  write_file_atomically(path / "operative_config.gin", "A.b = 1\n");
  write_file_atomically(path / "metrics.jsonl", "");
  write_file_atomically(path / "run.json.tmp-99", "{");
  RunDirectory run = RunDirectory::create(path, {}, "A.b = 2\n", false);
  EXPECT_EQ(read_file(run.operative_config()), "A.b = 2\n");
  run.append_metrics({{"step", 1}, {"evaluation", {{"MRR", 0.5}}}});
  fs::create_directories(path / "checkpoints/step_3.tmp-99/tables");
  EXPECT_EQ(run.truncate_metrics_after(1), 1);
  EXPECT_FALSE(fs::exists(path / "run.json.tmp-99"));
  EXPECT_FALSE(fs::exists(path / "checkpoints/step_3.tmp-99"));
  EXPECT_EQ(run.truncate_metrics_after(0), -1);

  // A user's file next to them.
  fs::remove(path / "run.json");
  write_file_atomically(path / "notes.txt", "x");
  EXPECT_THROW(RunDirectory::create(path, {}, "", false), UsageError);
}

// The lines of metrics.jsonl lead to the configuration in force.
TEST(RunDirectory, ChangesThatWereHalfRecordedOrWhoseLineIsDroppedAreSaidAgain) {
  const TemporaryDirectory parent;
  RunDirectory run = RunDirectory::create(parent.path() / "run", {}, "A.b = 1\nA.c = 7\n", false);
  const auto lines = [&] { return read_file(run.metrics_file()); };
  run.append_metrics({{"step", 2}});
  run.append_metrics({{"step", 4}});
  run.record_changes(4, 1, {}, "A.b = 1\nA.c = 7\n");
  EXPECT_EQ(lines(), "{\"step\":2}\n{\"step\":4}\n");
  run.record_changes(4, 1, {{"A.b", {"1", "2"}}}, "A.b = 2\nA.c = 7\n");
  const std::string second =
      R"({"configuration":{"A.b":{"before":"1","now":"2"}},"epoch":1,"step":4})"
      "\n";
  EXPECT_EQ(lines(), "{\"step\":2}\n{\"step\":4}\n" + second);
  EXPECT_EQ(read_file(run.operative_config()), "A.b = 2\nA.c = 7\n");

  // Killed between the two writes: the line exists, but the configuration is the old one. Resuming
  // with the same change adds nothing; without it, the line is taken back.
  write_file_atomically(run.operative_config(), "A.b = 1\nA.c = 7\n");
  run.record_changes(4, 1, {{"A.b", {"1", "2"}}}, "A.b = 2\nA.c = 7\n");
  EXPECT_EQ(lines(), "{\"step\":2}\n{\"step\":4}\n" + second);
  EXPECT_EQ(read_file(run.operative_config()), "A.b = 2\nA.c = 7\n");
  write_file_atomically(run.operative_config(), "A.b = 1\nA.c = 7\n");
  run.record_changes(4, 1, {}, "A.b = 1\nA.c = 7\n");
  const std::string back =
      R"({"configuration":{"A.b":{"before":"2","now":"1"}},"epoch":1,"step":4})"
      "\n";
  EXPECT_EQ(lines(), "{\"step\":2}\n{\"step\":4}\n" + second + back);

  // The checkpoint of step 4 is gone: the run resumes from 2 with the configuration in force.
  write_file_atomically(run.operative_config(), "A.b = 3\nA.c = 7\n");
  run.record_changes(2, 1, {{"A.c", {"7", "8"}}}, "A.b = 3\nA.c = 8\n");
  EXPECT_EQ(lines(),
            "{\"step\":2}\n"
            R"({"configuration":{"A.b":{"before":"1","now":"3"},"A.c":{"before":"7","now":"8"}},)"
            R"("epoch":1,"step":2})"
            "\n");
}

TEST(RunDirectory, DoesNotOverwrite) {
  const TemporaryDirectory parent;
  const fs::path path = parent.path() / "run";
  RunDirectory::create(path, {}, "", false);
  EXPECT_THROW(RunDirectory::create(path, {}, "", false), UsageError);
  write_file_atomically(path / "old", "x");
  RunDirectory::create(path, {}, "", true);
  EXPECT_FALSE(fs::exists(path / "old"));
  // Not a run: never removed, even with force.
  write_file_atomically(parent.path() / "precious", "x");
  EXPECT_THROW(RunDirectory::create(parent.path(), {}, "", true), UsageError);
  EXPECT_TRUE(fs::exists(parent.path() / "precious"));
  EXPECT_THROW(RunDirectory::open(parent.path()), DataError);
}

}  // namespace
}  // namespace seqfuse::training::checkpoint_files_test
