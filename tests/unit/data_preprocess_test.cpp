// preprocess() and Dataset::open() on small inputs: results for any number of threads and any
// memory limit; errors leave nothing behind.
#include "data/ingest/preprocess.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/random.h"
#include "data/dataset/processed_seqs.h"
#include "tests/unit/preprocess_run.h"

namespace seqfuse::data::data_preprocess_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(PreprocessTest, SortsByTimeStably) {
  const auto dataset = run_csv("user,item,time\n2,a,5\n1,b,9\n2,c,5\n2,d,1\n1,e,3\n");
  EXPECT_EQ(dataset->num_users(), 2);
  EXPECT_THAT(items(*dataset, 0), ElementsAre("e", "b"));
  EXPECT_THAT(items(*dataset, 1), ElementsAre("d", "a", "c"));
  EXPECT_THAT(dataset->user(1).timestamps, ElementsAre(1, 5, 5));
  EXPECT_EQ(dataset->manifest().action_kind, ActionKind::none);
  EXPECT_TRUE(dataset->user(0).actions.empty());
}

TEST_F(PreprocessTest, BomCrlfQuotesCommasAndNoFinalNewline) {
  const auto dataset =
      run_csv("\xEF\xBB\xBFuser,item,time\r\n\"u,1\",\"say \"\"x\"\"\",1\r\n\"u,1\",b,2");
  EXPECT_EQ(dataset->user_id(0), "u,1");
  EXPECT_THAT(items(*dataset, 0), ElementsAre("say \"x\"", "b"));
}

TEST_F(PreprocessTest, IdsOfAnyKind) {
  const auto dataset = run_csv(
      "user,item,time\n-7,99999999999999999999,1\n-7,007,2\n9223372036854775807,7,1\nbob,x,1\n");
  EXPECT_EQ(dataset->user_id(0), "-7");
  EXPECT_EQ(dataset->user_id(1), "9223372036854775807");
  EXPECT_EQ(dataset->user_id(2), "bob");
  EXPECT_EQ(dataset->find_user("bob"), 2);
  EXPECT_EQ(dataset->find_item("7"), 1);
  EXPECT_EQ(dataset->find_item("007"), 2);
  EXPECT_EQ(dataset->find_item("99999999999999999999"), 3);
  EXPECT_EQ(dataset->find_item("x"), 4);
  EXPECT_FALSE(dataset->find_item("8"));
  EXPECT_THAT(items(*dataset, 0), ElementsAre("99999999999999999999", "007"));
}

TEST_F(PreprocessTest, ContextOfRowsAndTitles) {
  csv_.user_id_feature = true;
  csv_.context = {{"city", "city"}};
  csv_.titles = TitleTable{{"titles.csv", "", ""}, TableFormat(), "item", "title"};
  write("in/log.csv", "user,item,time,city\n1,a,1,Rome\n2,b,1,\n3,a,1,Bern\n1,b,2,Bern\n");
  write("in/titles.csv", "item,title\na,\"Alien, 1979\"\nz,unused\n");
  const auto dataset = run(csv_);
  ASSERT_EQ(dataset->manifest().context.size(), 2U);
  EXPECT_EQ(dataset->manifest().context[0].name, "user_id");
  EXPECT_EQ(dataset->manifest().context[0].vocab_size, 4);
  EXPECT_EQ(dataset->manifest().context[1].vocab_size, 3);
  EXPECT_EQ(dataset->context(0, 2), 3);
  EXPECT_EQ(dataset->context(1, 0), 2) << "Rome, of the first row";
  EXPECT_EQ(dataset->context(1, 1), 0) << "blank is unknown";
  EXPECT_EQ(dataset->context(1, 2), 1);
  EXPECT_EQ(dataset->item_title(1), "Alien, 1979");
  EXPECT_EQ(dataset->item_title(2), "");
  EXPECT_THAT(result_.manifest.rules, Contains(HasSubstr("1 rows differed")));
}

TEST_F(PreprocessTest, DuplicatesAndFilters) {
  const char* log = "user,item,time\n1,a,1\n1,a,1\n1,b,2\n2,a,1\n2,rare,2\n2,b,3\n3,rarer,1\n";
  EXPECT_EQ(run_csv(log)->manifest().num_events, 7);
  options_.deduplicate = true;
  EXPECT_EQ(run_csv(log)->manifest().num_events, 6);
  options_.min_item_events = 2;
  const auto dataset = run_csv(log);
  EXPECT_EQ(dataset->num_users(), 2) << "user 3 had nothing but a rare item";
  EXPECT_EQ(dataset->num_items(), 2);
  EXPECT_THAT(items(*dataset, 1), ElementsAre("a", "b"));
  options_.min_user_events = 100;
  EXPECT_THAT(refused_csv(log), HasSubstr("--min-user-events 100"));
}

TEST_F(PreprocessTest, OneEventAUserIsEnough) {
  EXPECT_EQ(run_csv("user,item,time\n1,a,1\n")->user(0).items.size(), 1U);
}

TEST_F(PreprocessTest, MalformedRowsAreNamedOrCounted) {
  csv_.action_columns = {"rating"};
  csv_.action_rule = ActionRule::half_stars;
  const std::string head = "user,item,time,rating\n1,a,1,5\n";
  EXPECT_THAT(refused_csv(head + "1,a,2\n"),
              AllOf(HasSubstr("in:3"), HasSubstr("expected 4 columns, found 3"),
                    HasSubstr("--on-bad-row skip")));
  EXPECT_THAT(refused_csv(head + "1,a,soon,5\n"),
              AllOf(HasSubstr("in:3"), HasSubstr("column time is 'soon'")));
  EXPECT_THAT(refused_csv(head + "1,a,,5\n"), HasSubstr("--blank-time between"));
  EXPECT_THAT(refused_csv(head + ",a,1,5\n"), HasSubstr("column user is blank"));
  EXPECT_THAT(refused_csv(head + "1,a,1,4.2\n"),
              HasSubstr("column rating is '4.2'; expected a rating"));
  EXPECT_THAT(refused_csv(head + "1,\"a,1,5\n"), HasSubstr("in:3: a quoted field is not closed"));
  options_.ingest.on_bad_row = BadRows::skip;
  const auto dataset = run_csv(head + "1,a,2\nx\n1,b,3,1\n1,c,4,0\n");
  EXPECT_EQ(dataset->manifest().num_events, 2);
  EXPECT_EQ(result_.bad_rows, 3);
  EXPECT_THAT(result_.bad_examples, Contains(HasSubstr("in:6: column rating is '0'")));
  EXPECT_THAT(result_.manifest.rules, Contains(HasSubstr("3 malformed rows of 5 were skipped")));
}

TEST_F(PreprocessTest, EmptyInputs) {
  EXPECT_THAT(refused_csv(""), HasSubstr("is empty"));
  EXPECT_THAT(refused_csv("user,item,time\n"), HasSubstr("no events"));
  EXPECT_THAT(refused_csv("users,item,time\n1,a,1\n"),
              HasSubstr("no column 'user' (did you mean 'users'?)"));
  fs::remove(path("in"));
  EXPECT_THAT(refused(csv_), HasSubstr("does not exist"));
}

// --- archives ---

void write_tar_gz(const fs::path& file, const std::map<std::string, std::string>& members) {
  archive* out = archive_write_new();
  archive_write_add_filter_gzip(out);
  archive_write_set_format_ustar(out);
  ASSERT_EQ(archive_write_open_filename(out, file.c_str()), ARCHIVE_OK);
  for (const auto& [name, content] : members) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_size(entry, static_cast<int64_t>(content.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_write_header(out, entry);
    archive_write_data(out, content.data(), content.size());
    archive_entry_free(entry);
  }
  archive_write_close(out);
  archive_write_free(out);
}

std::string random_ratings(int rows) {
  Random random(3);
  std::string text;
  for (int i = 0; i < rows; ++i) {
    text += fmt::format("{}::{}::{}::{}\n", random.below(50) + 1, random.below(90) + 1,
                        random.below(5) + 1, random.below(1000000));
  }
  return text;
}

TEST_F(PreprocessTest, MovieLensFromAnArchiveWithLatin1Titles) {
  options_.ingest.input = path("ml-1m.tar.gz");
  write_tar_gz(options_.ingest.input,
               {{"ml-1m/movies.dat", "1::Mis\xE9rables, Les (1995)::Drama\n2::Up::Comedy\n"},
                {"ml-1m/ratings.dat", "7::2::5::200\n7::1::1::100\n3::2::3::100\n"},
                {"ml-1m/users.dat", "3::F::1::10::48067\n7::M::56::16::02460\n9::M::25::1::1\n"}});
  const auto dataset = run(find_format("ml-1m"));
  EXPECT_EQ(dataset->num_users(), 2) << "user 9 has no event";
  EXPECT_EQ(dataset->item_title(1), "Mis\xC3\xA9rables, Les (1995)");
  EXPECT_THAT(dataset->user(1).actions, ElementsAre(0, 4));
  EXPECT_EQ(dataset->manifest().time_units_per_second, 1);
  ASSERT_EQ(dataset->manifest().context.size(), 5U);
  EXPECT_EQ(dataset->context(1, 0), 1) << "F";
  EXPECT_EQ(dataset->context(4, 1), 2) << "02460 is text, after the number 48067";
}

TEST_F(PreprocessTest, TruncatedWrongAndMisnamedArchives) {
  options_.ingest.input = path("ml-1m.tar.gz");
  write_tar_gz(options_.ingest.input,
               {{"ml-1m/ratings.dat", random_ratings(20000)}, {"ml-1m/users.dat", ""}});
  EXPECT_THAT(refused(find_format("ml-20m")),
              AllOf(HasSubstr("no ratings.csv"), HasSubstr("is it --dataset-name ml-1m?")));
  const std::string whole = read_file(options_.ingest.input);
  write("ml-1m.tar.gz", std::string_view(whole).substr(0, whole.size() / 2));
  EXPECT_THAT(refused(find_format("ml-1m")),
              AllOf(HasSubstr("ml-1m.tar.gz"), HasSubstr("truncated")));
  write("ml-1m.tar.gz", "<html>404 not found</html>");
  EXPECT_THAT(refused(find_format("ml-1m")), HasSubstr("not what its name says"));
}

// --- KuaiRand ---

TEST_F(PreprocessTest, KuaiRandBitsAndJoin) {
  const std::string header =
      "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,is_"
      "hate,"
      "long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,is_profile_enter,is_"
      "rand,tab\n";
  write("in/data/log_standard_4_08_to_4_21_pure.csv",
        header +
            "0,5,1,1,200,1,0,0,0,0,0,1,9,9,0,0,2,0,1\n1,5,1,1,100,0,0,0,0,0,0,0,9,9,0,0,0,0,1\n");
  write("in/data/log_standard_4_22_to_5_08_pure.csv",
        header + "0,6,1,1,100,0,1,0,0,0,0,0,9,9,0,0,0,0,1\n");
  write("in/data/log_random_4_22_to_5_08_pure.csv",
        header + "0,7,1,1,100,0,1,0,0,0,0,0,9,9,0,0,0,0,1\n");
  write(
      "in/data/user_features_pure.csv",
      "user_id,user_active_degree,follow_user_num_range,fans_user_num_range,friend_user_num_range,"
      "register_days_range\n0,full_active,500+,\"[100,1k)\",0,730+\n");
  const auto inner = run(find_format("kuairand-pure"));
  EXPECT_EQ(inner->num_users(), 1) << "user 1 is missing from the second file";
  EXPECT_EQ(inner->num_items(), 2) << "log_random is not read";
  EXPECT_THAT(inner->user(0).actions, ElementsAre(2, 1 + 64 + 128));
  EXPECT_THAT(items(*inner, 0), ElementsAre("6", "5"));
  EXPECT_EQ(inner->manifest().num_actions, 256);
  EXPECT_EQ(inner->manifest().time_units_per_second, 1000);
  EXPECT_THAT(result_.manifest.rules, Contains(HasSubstr("dropped (1 of 2)")));
  options_.join = Join::outer;
  options_.force = true;
  const auto outer = run(find_format("kuairand-pure"));
  EXPECT_EQ(outer->num_users(), 2);
  EXPECT_EQ(outer->context(1, 1), 0) << "not in the user table: unknown";
}

// --- the same bytes ---

TEST_F(PreprocessTest, SameBytesForAnyThreadsAndMemory) {
  Random random(11);
  std::string log = "user,item,time,x\n";
  for (int i = 0; i < 400000; ++i) {
    log += fmt::format("{},{},{},{}\n", random.below(3000), random.below(random.below(50000) + 1),
                       random.below(1000), random.below(3));
  }
  csv_.action_columns = {"x"};
  csv_.action_rule = ActionRule::values;
  std::map<std::string, std::string> first;
  const int threads_before = num_threads();
  for (const auto& [threads, memory] :
       std::vector<std::pair<int, int64_t>>{{1, 1 << 30}, {4, 1 << 20}}) {
    set_num_threads(threads);
    options_.memory_limit = memory;
    run_csv(log);
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(options_.output)) {
      if (entry.is_regular_file()) {
        files[fs::relative(entry.path(), options_.output).string()] = read_file(entry.path());
      }
    }
    EXPECT_TRUE(files.contains("manifest.json"));
    if (first.empty()) first = files;
    EXPECT_TRUE(files == first);
  }
  set_num_threads(threads_before);
}

TEST_F(PreprocessTest, ProcessedSeqsReadBackAsTheSameDataset) {
  write("in/ratings.dat", random_ratings(500) + "61::91::5::7\n");
  write("in/users.dat", "3::F::1::10::48067\n7::M::56::16::02460\n9::M::25::1::1\n");
  const auto before = run(find_format("ml-1m"));
  write_processed_seqs(*before, path("processed_seqs.csv"));
  EXPECT_THAT(read_file(path("processed_seqs.csv")),
              HasSubstr("\n61,,,,,\"[91]\",\"[4]\",\"[7]\"\n"));
  options_.ingest.input = path("processed_seqs.csv");
  options_.ingest.kind = InputKind::processed_seqs;
  options_.output = path("again");
  const auto after = run(find_format("ml-1m"));
  ASSERT_EQ(after->num_users(), before->num_users());
  for (int64_t row = 0; row < before->num_users(); ++row) {
    EXPECT_EQ(after->user_id(row), before->user_id(row));
    EXPECT_EQ(items(*after, row), items(*before, row));
    EXPECT_THAT(after->user(row).actions, testing::ElementsAreArray(before->user(row).actions));
    EXPECT_THAT(after->user(row).timestamps,
                testing::ElementsAreArray(before->user(row).timestamps));
    for (int64_t f = 0; f < 5; ++f) EXPECT_EQ(after->context(f, row), before->context(f, row));
  }
}

TEST_F(PreprocessTest, ProcessedSeqsOfTextIds) {
  csv_.action_columns = {"x"};
  csv_.action_rule = ActionRule::values;
  const auto before = run_csv("user,item,time,x\nbob,924,5,1\nbob,919,4,0\nann,x y,2,2\n");
  write_processed_seqs(*before, path("processed_seqs.csv"));
  EXPECT_EQ(read_file(path("processed_seqs.csv")),
            "user_id,item_id,action,timestamp\n"
            "ann,\"[\"\"x y\"\"]\",\"[2]\",\"[2]\"\n"
            "bob,\"[919, 924]\",\"[0, 1]\",\"[4, 5]\"\n");
  options_.ingest.input = path("processed_seqs.csv");
  options_.ingest.kind = InputKind::processed_seqs;
  options_.output = path("again");
  const auto after = run(csv_);
  EXPECT_EQ(items(*after, 0), items(*before, 0));
  EXPECT_THAT(after->user(1).actions, ElementsAre(0, 1));
}

TEST_F(PreprocessTest, ProcessedSeqsThatDoNotFit) {
  options_.ingest.input = path("processed_seqs.csv");
  options_.ingest.kind = InputKind::processed_seqs;
  write("processed_seqs.csv", "user_id,movie_id,rating\n1,\"[1, 2]\",\"[9, 10]\"\n");
  options_.output = path("bad");
  EXPECT_THAT(refused(find_format("ml-latest-small")),
              HasSubstr("the label 10, but labels of ml-latest-small are 0 to 9"));
  write("processed_seqs.csv", "user_id,item_id\n1,\"[1, 2\"\n");
  EXPECT_THAT(refused(csv_), AllOf(HasSubstr(":2: column item_id"), HasSubstr("expected a list")));
}

// --- the output ---

TEST_F(PreprocessTest, ExistingOutputIsKeptUnlessForced) {
  run_csv("user,item,time\n1,a,1\n");
  options_.force = false;
  EXPECT_THAT(refused(csv_), HasSubstr("--force"));
  EXPECT_EQ(Dataset::open(options_.output)->num_users(), 1);
  options_.output = path("empty");
  fs::create_directory(options_.output);
  EXPECT_EQ(run(csv_)->num_users(), 1) << "nothing to replace";
  options_.force = true;
  options_.output = path("precious");
  write("precious/thesis.tex", "x");
  EXPECT_THAT(refused(csv_), HasSubstr("is not a dataset directory"));
  EXPECT_TRUE(fs::exists(path("precious/thesis.tex")));
}

TEST_F(PreprocessTest, UnwritableOutputIsNamed) {
  write("in", "user,item,time\n1,a,1\n");
  options_.output = "/proc/no_such_place/out";
  try {
    preprocess(csv_, options_);
    FAIL() << "was not refused";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/proc/no_such_place"));
  }
}

// --- reading a dataset ---

class DatasetTest : public PreprocessTest {
 protected:
  DatasetTest() { run_csv("user,item,time\n1,a,1\n1,b,2\n2,a,1\n"); }

  std::string open_error() const {
    try {
      Dataset::open(options_.output);
      ADD_FAILURE() << "was opened";
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  void edit(const std::string& name, const std::function<void(std::string&)>& change) const {
    std::string content = read_file(options_.output / name);
    change(content);
    std::ofstream(options_.output / name, std::ios::binary) << content;
  }
  void replace(const std::string& what, const std::string& with) const {
    edit("manifest.json", [&](std::string& json) {
      const size_t at = json.find(what);
      ASSERT_NE(at, std::string::npos) << what;
      json.replace(at, what.size(), with);
    });
  }
};

TEST_F(DatasetTest, CorruptFilesAreNamed) {
  edit("sequences/part-00000.arrow", [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  EXPECT_THAT(open_error(), AllOf(HasSubstr("part-00000.arrow"), HasSubstr("corrupt")));
  edit("sequences/part-00000.arrow", [](std::string& bytes) { bytes.resize(bytes.size() / 3); });
  EXPECT_THAT(open_error(), AllOf(HasSubstr("part-00000.arrow"), HasSubstr("corrupt")));
  fs::remove(options_.output / "sequences/part-00000.arrow");
  EXPECT_THAT(open_error(), AllOf(HasSubstr("part-00000.arrow"), HasSubstr("missing")));
}

TEST_F(DatasetTest, TruncatedManifest) {
  edit("manifest.json", [](std::string& json) { json.resize(json.size() / 2); });
  EXPECT_THAT(open_error(), AllOf(HasSubstr("manifest.json"), HasSubstr("truncated")));
}

TEST_F(DatasetTest, EditedManifest) {
  replace("\"num_users\": 2", "\"num_users\": 3");
  EXPECT_THAT(open_error(), AllOf(HasSubstr("manifest.json"), HasSubstr("num_users")));
  replace("\"num_users\": 3", "\"num_users\": \"two\"");
  EXPECT_THAT(open_error(), HasSubstr("num_users must be an integer"));
  replace("\"num_users\": \"two\",", "");
  EXPECT_THAT(open_error(), HasSubstr("num_users is missing"));
}

TEST_F(DatasetTest, VocabularyOfAnotherDataset) {
  replace("\"vocabulary_hash\": \"xxh3:", "\"vocabulary_hash\": \"xxh3:0");
  EXPECT_THAT(open_error(), HasSubstr("vocabulary_hash"));
}

TEST_F(DatasetTest, NotADataset) {
  fs::remove(options_.output / "manifest.json");
  EXPECT_THAT(open_error(), HasSubstr("has no manifest.json"));
}

}  // namespace
}  // namespace seqfuse::data::data_preprocess_test
