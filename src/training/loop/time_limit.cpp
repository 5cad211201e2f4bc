#include "training/loop/time_limit.h"

#include <algorithm>

namespace seqfuse::training {

void allow(distributed::ProcessGroup& group, const config::TrainerArgs& args,
           const std::string& what, double seconds) {
  group.begin(what, std::max(seconds, args.rank_timeout_seconds));
}

}  // namespace seqfuse::training
