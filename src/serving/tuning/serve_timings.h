// The child's side of a WorkerTimer.
#pragma once

#include "serving/tuning/program_bench.h"

namespace seqfuse::serving {

// Answers requests from standard input until the parent ends.
void serve_timings(ProgramBench& bench);

}  // namespace seqfuse::serving
