#include "base/error.h"
#include "cli/verbs.h"

int seqfuse::cli::cmd_synthesize(int, char**) { throw Error("under construction"); }
