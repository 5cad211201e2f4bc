// Checks and times programs of a model on the device that it is on.
//
// The check: layer 1 against the unfused program in float64. The largest error may be twice that of the
// unfused program in the model's dtype, plus 1e-4 in 16 bits, 1e-6 in float32. Times: on a GPU of a CUDA
// graph, so without what the host does; on the CPU by the clock. Medians after warm-up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/bert/model.h"
#include "models/bert/scheme_program.h"
#include "serving/tuning/timer.h"

namespace seqfuse::serving {

class ProgramBench {
 public:
  // `batch` sequences of `seq` random tokens each. The model must outlive this object. Runs the unfused
  // program once in float64, one sequence at a time. Throws UsageError for lengths beyond the model's.
  ProgramBench(const models::bert::Model& model, const std::vector<std::string>& mask,
               int64_t batch, int64_t seq);
  ~ProgramBench();

  // Throw Error for what cannot run, c10::Error for what the GPU refuses.
  Timing scheme(int64_t number, const models::bert::Choices& choices);
  Timing segment(fusion::Segment segment, const std::string& choice);
  std::vector<std::string> choices(fusion::Segment segment) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace seqfuse::serving
