#include "embeddings/table_contents.h"

#include <fmt/ranges.h>

#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace seqfuse::embeddings {
namespace {

std::string text_of(at::IntArrayRef shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

std::string names_of(const StateTensors& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) {
    if (!is_of_dynamic_table(name)) names.push_back(name);
  }
  return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "));
}

void check_shape(const std::string& what, int64_t rows, const at::Tensor& here,
                 const at::Tensor& given) {
  std::vector<int64_t> expected = here.sizes().vec();
  expected[0] = rows;
  SEQFUSE_CHECK_AS(DataError, given.sizes() == at::IntArrayRef(expected),
                   "the checkpoint's {} is {}, the model's is {}: it is of another architecture or "
                   "vocabulary",
                   what, text_of(given.sizes()), text_of(expected));
}

void check_ids(const std::string& table, int64_t num_rows, const TableContents& given,
               bool all_ids) {
  const int64_t size = given.size();
  SEQFUSE_CHECK_AS(
      DataError,
      given.ids.scalar_type() == torch::kLong && given.ids.dim() == 1 && given.ids.size(0) == size,
      "the checkpoint's ids of table {} are {} {}, expected int64 [{}], one per row", table,
      toString(given.ids.scalar_type()), text_of(given.ids.sizes()), size);
  const at::Tensor ids = given.ids.cpu();
  if (size > 0) {
    const int64_t lowest = ids.min().item<int64_t>(), highest = ids.max().item<int64_t>();
    SEQFUSE_CHECK_AS(DataError, lowest >= 0 && highest < num_rows,
                     "the checkpoint's table {} has id {}; the model's has ids of at least 0 and "
                     "below {}: it is of another vocabulary",
                     table, lowest < 0 ? lowest : highest, num_rows);
  }
  const at::Tensor missing = torch::ones({num_rows}, torch::kBool).index_fill_(0, ids, 0);
  const int64_t num_missing = missing.sum().item<int64_t>();
  SEQFUSE_CHECK_AS(DataError, num_rows - num_missing == size,
                   "the checkpoint's table {} has {} ids more than once", table,
                   size - (num_rows - num_missing));
  SEQFUSE_CHECK_AS(DataError, !all_ids || num_missing == 0,
                   "the checkpoint's table {} lacks {} of the model's {} ids (the first is {}): it "
                   "is damaged or of another vocabulary",
                   table, num_missing, num_rows,
                   num_missing == 0 ? 0 : at::argmax(missing.to(torch::kByte)).item<int64_t>());
}

}  // namespace

bool is_of_dynamic_table(const std::string& name) {
  static const std::set<std::string> names = {kSharedRow, "scores", "touched",
                                              "slots",    "table",  "shards"};
  return names.contains(name) || name.starts_with("counted_");
}

void check_contents(const std::string& table, int64_t num_rows, const TableContents& here,
                    const TableContents& given, const LoadOptions& options) {
  const std::string what = "table " + table;
  SEQFUSE_CHECK_AS(DataError, given.rows.defined(), "the checkpoint has no rows of table {}",
                   table);
  // Without ids, there must be as many rows as the vocabulary has.
  int64_t rows = given.size();
  if (!given.ids.defined() && (options.all_ids || rows > num_rows)) rows = num_rows;
  check_shape(what, rows, here.rows, given.rows);
  if (const auto shared = given.state.find(kSharedRow); shared != given.state.end()) {
    const at::IntArrayRef expected = here.rows.sizes().slice(1);
    SEQFUSE_CHECK_AS(DataError, shared->second.sizes() == expected,
                     "the checkpoint's shared row of {} is {}, the model's rows are {}: it is of "
                     "another architecture",
                     what, text_of(shared->second.sizes()), text_of(expected));
  }
  const bool all_ids = options.all_ids && !given.state.contains(kSharedRow);
  if (given.ids.defined()) check_ids(table, num_rows, given, all_ids);
  if (!options.state) return;
  const std::string there = names_of(given.state), expected = names_of(here.state);
  SEQFUSE_CHECK_AS(DataError, there == expected,
                   "the checkpoint's optimiser state of {} is {}, the model's is {}: it was made "
                   "with another optimiser",
                   what, there, expected);
  for (const auto& [name, tensor] : here.state) {
    check_shape(fmt::format("{} of {}", name, what), rows, tensor, given.state.at(name));
  }
}

}  // namespace seqfuse::embeddings
