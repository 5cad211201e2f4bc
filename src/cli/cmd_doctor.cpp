#include "base/error.h"
#include "cli/verbs.h"

int seqfuse::cli::cmd_doctor(int, char**) { throw Error("under construction"); }
