#include "base/error.h"
#include "cli/verbs.h"

namespace seqfuse::cli {
int cmd_recommend(int, char**) { throw Error("under construction"); }
}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_recommend(int argc, char** argv) { return seqfuse::cli::cmd_recommend(argc, argv); }
