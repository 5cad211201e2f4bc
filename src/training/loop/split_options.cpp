#include "training/loop/split_options.h"

#include <array>
#include <string>

#include "base/error.h"
#include "base/names.h"

namespace seqfuse::training {
namespace {

data::SplitKind split_kind(const std::string& name) {
  static const std::array<std::string, 3> names = {"leave_one_out", "user", "temporal"};
  if (name == names[0]) return data::SplitKind::leave_one_out;
  if (name == names[1]) return data::SplitKind::user;
  if (name == names[2]) return data::SplitKind::temporal;
  throw_error<UsageError>("DatasetArgs.split is '{}'{}: expected leave_one_out, user or temporal",
                          name, did_you_mean(name, names));
}

data::Truncate truncation(const std::string& name) {
  if (name == "newest") return data::Truncate::newest;
  if (name == "oldest") return data::Truncate::oldest;
  if (name == "random") return data::Truncate::random;
  throw_error<UsageError>("DatasetArgs.truncate is '{}': expected newest, oldest or random", name);
}

}  // namespace

data::SplitOptions split_options(const config::DatasetArgs& args, models::Task task) {
  return {.kind = split_kind(args.split),
          .retrieval = task == models::Task::retrieval,
          .max_history = args.max_history_seqlen,
          .max_candidates = args.max_num_candidates,
          .truncate = truncation(args.truncate),
          .train_fraction = args.train_fraction,
          .hold_out_validation = args.hold_out_validation};
}

const std::vector<data::Sample>& evaluation_samples(const config::DatasetArgs& args,
                                                    const data::Split& split) {
  return args.evaluate_on == "validation" ? split.validation : split.test;
}

}  // namespace seqfuse::training
