// Rows of a checkpoint moved to a larger vocabulary; tests/cli/growing_test.cpp trains on.
#include "training/checkpoint/grown_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/models/model_fixtures.h"
#include "training/checkpoint/model_spec_json.h"

namespace seqfuse::grown_vocabulary_test {
namespace {

using data::ActionKind;
using models::hstu::ModelSpec;
using models::hstu::Task;
using testing::ElementsAre;
using testing::HasSubstr;
using training::Checkpoint;
using Names = std::vector<std::string>;

class NamedItems final : public data::Vocabulary {
 public:
  NamedItems(const std::string& hash, Names items, ActionKind kind, const Names& actions)
      : items_(std::move(items)) {
    directory_ = hash;
    manifest_ = models::hstu::small_manifest();
    manifest_.num_items = std::ssize(items_);
    manifest_.action_kind = kind;
    manifest_.action_names = actions;
    manifest_.num_actions =
        kind == ActionKind::bits ? int64_t{1} << actions.size() : std::ssize(actions);
    manifest_.context.clear();
    manifest_.hash = hash;
  }

  std::string item_id(int64_t item) const override { return items_.at(item - 1); }
  std::string item_title(int64_t /*item*/) const override { return ""; }
  std::optional<int64_t> find_item(std::string_view id) const override {
    const auto found = std::find(items_.begin(), items_.end(), id);
    if (found == items_.end()) return std::nullopt;
    return found - items_.begin() + 1;
  }

 private:
  Names items_;
};

ModelSpec spec_for(const data::Vocabulary& vocabulary, Task task = Task::retrieval) {
  ModelSpec spec;  // of which only this is read
  spec.task = task;
  spec.num_items = vocabulary.num_items();
  spec.num_actions = vocabulary.manifest().num_actions;
  spec.dataset_hash = vocabulary.manifest().hash;
  return spec;
}

Checkpoint checkpoint_for(const data::Vocabulary& vocabulary) {
  Checkpoint checkpoint;
  checkpoint.state["spec"] = training::to_json(spec_for(vocabulary));
  checkpoint.tables["item"].rows = torch::randn({vocabulary.num_items() + 1, 2});
  checkpoint.tables["action"].rows = torch::randn({vocabulary.manifest().num_actions, 2});
  return checkpoint;
}

std::vector<int64_t> ids_of(const Checkpoint& checkpoint, const std::string& table) {
  const at::Tensor ids = checkpoint.tables.at(table).ids;
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()};
}

const NamedItems kBefore("before", {"b", "d"}, ActionKind::classes, {"1", "3"});

std::string refusal(Checkpoint checkpoint, const data::Vocabulary& before,
                    const data::Vocabulary& now, Task task = Task::retrieval) {
  try {
    move_to_vocabulary(checkpoint, before, now, spec_for(now, task));
  } catch (const DataError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(GrownVocabulary, RowsGetTheIndicesOfTheirRawIds) {
  const NamedItems now("now", {"a", "b", "c", "d", "e"}, ActionKind::classes, {"1", "2", "3"});
  Checkpoint checkpoint = checkpoint_for(kBefore);
  const auto growth = move_to_vocabulary(checkpoint, kBefore, now, spec_for(now));
  EXPECT_EQ(training::growth_text(growth),
            "table item: 3 rows kept, 3 new; table action: 2 rows kept, 1 new");
  EXPECT_THAT(ids_of(checkpoint, "item"), ElementsAre(0, 2, 4));
  EXPECT_THAT(ids_of(checkpoint, "action"), ElementsAre(0, 2));
  EXPECT_EQ(checkpoint.state["spec"], training::to_json(spec_for(now)));
}

TEST(GrownVocabulary, RowsThatTheCheckpointHasInAnotherOrder) {
  const NamedItems now("now", {"a", "b", "c", "d"}, ActionKind::classes, {"1", "3"});
  Checkpoint checkpoint = checkpoint_for(kBefore);
  checkpoint.tables["item"].ids = torch::tensor({2, 0, 1}, torch::kLong);
  move_to_vocabulary(checkpoint, kBefore, now, spec_for(now));
  EXPECT_THAT(ids_of(checkpoint, "item"), ElementsAre(4, 0, 2));
}

TEST(GrownVocabulary, NewBitsComeAfterTheOldOnes) {
  const NamedItems before("before", {"b"}, ActionKind::bits, {"click", "like"}),
      more("now", {"b"}, ActionKind::bits, {"click", "like", "buy"}),
      between("now", {"b"}, ActionKind::bits, {"click", "buy", "like"});
  for (const Task task : {Task::retrieval, Task::ranking}) {
    Checkpoint checkpoint = checkpoint_for(before);
    move_to_vocabulary(checkpoint, before, more, spec_for(more, task));
    EXPECT_THAT(ids_of(checkpoint, "action"), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(refusal(checkpoint_for(before), before, between, task),
                HasSubstr("the actions of now are [click, buy, like], the weights were trained on "
                          "[click, like] (before): these must be the first ones"));
  }
}

TEST(GrownVocabulary, ClassesThatARankingModelPredictsKeepTheirLabels) {
  const NamedItems between("now", {"b", "d"}, ActionKind::classes, {"1", "2", "3"}),
      after("now", {"b", "d"}, ActionKind::classes, {"1", "3", "4"});
  EXPECT_THAT(refusal(checkpoint_for(kBefore), kBefore, between, Task::ranking),
              HasSubstr("these must be the first ones, in this order"));
  Checkpoint checkpoint = checkpoint_for(kBefore);
  move_to_vocabulary(checkpoint, kBefore, after, spec_for(after, Task::ranking));
  EXPECT_THAT(ids_of(checkpoint, "action"), ElementsAre(0, 1));
}

TEST(GrownVocabulary, NamesMissingEntries) {
  const NamedItems fewer("now", {"a", "b"}, ActionKind::classes, {"1", "3"}),
      other("now", {"b", "d"}, ActionKind::classes, {"1", "2"}),
      bits("now", {"b", "d"}, ActionKind::bits, {"1", "3"});
  EXPECT_THAT(refusal(checkpoint_for(kBefore), kBefore, fewer),
              HasSubstr("now lacks 1 of the 2 items that the weights were trained on (before), "
                        "such as 'd': a vocabulary may grow, not shrink"));
  EXPECT_THAT(refusal(checkpoint_for(kBefore), kBefore, other),
              HasSubstr("now lacks 1 of the 2 actions that the weights were trained on (before), "
                        "such as '3'"));
  EXPECT_THAT(refusal(checkpoint_for(kBefore), kBefore, bits), HasSubstr("are of another kind"));
}

TEST(GrownVocabulary, ACheckpointAndAVocabularyThatDoNotBelongTogetherAreRefused) {
  const NamedItems now("now", {"a", "b", "d"}, ActionKind::classes, {"1", "3"});
  EXPECT_THAT(refusal(checkpoint_for(now), kBefore, now),
              HasSubstr("before is not the vocabulary that the checkpoint was trained on"));
  Checkpoint checkpoint = checkpoint_for(kBefore);
  checkpoint.tables["item"].rows = torch::randn({4, 2});
  EXPECT_THAT(
      refusal(checkpoint, kBefore, now),
      HasSubstr("the checkpoint's table item has 4 rows, the vocabulary saved in its run 3"));
  checkpoint = checkpoint_for(kBefore);
  checkpoint.tables["item"].ids = torch::tensor({0, 1, 3}, torch::kLong);
  EXPECT_THAT(refusal(checkpoint, kBefore, now), HasSubstr("has ids outside 0..2: it is damaged"));
}

}  // namespace
}  // namespace seqfuse::grown_vocabulary_test
