#include "base/error.h"
#include "cli/verbs.h"

int seqfuse::cli::cmd_preprocess(int, char**) { throw Error("under construction"); }
