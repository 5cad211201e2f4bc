#include "training/loop/split_options.h"

namespace seqfuse::training {

data::SplitOptions split_options(const config::DatasetArgs& args, models::hstu::Task task) {
  return {.kind = args.split,
          .retrieval = task == models::hstu::Task::retrieval,
          .max_history = args.max_history_seqlen,
          .max_candidates = args.max_num_candidates,
          .truncate = args.truncate,
          .train_fraction = args.train_fraction,
          .hold_out_validation = args.hold_out_validation};
}

const std::vector<data::Sample>& evaluation_samples(const config::DatasetArgs& args,
                                                    const data::Split& split) {
  return args.evaluate_on == config::EvaluateOn::validation ? split.validation : split.test;
}

}  // namespace seqfuse::training
