// Any legal fusion scheme as a program.
//
// Each segment runs in one of these ways, the first that there is:
//   written    the groups of fused(), by hand: attention, residual + norm, bias + activation, products
//   library    a product whose epilogue a library computes: bias, bias + residual, mask; PV, written as rows
//   generated  elementwise, reduction and layout operators as one kernel (generated_run.h); on the CPU as
//              one loop where joined_loops.h has it
//   aten       an operator alone, by plain ATen
//   pieces     no way to run the segment as one: its operators as smaller segments, one after the other
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fusion/compile/kernel_cache.h"
#include "fusion/scheme.h"
#include "models/bert/program.h"

namespace seqfuse::models::bert {

// The model and device that a program is made for.
struct Target {
  Config config;
  at::Device device = at::kCPU;
  fusion::KernelCache cache;
};

// By name_of(segment) of fusion/codegen/row_kernel.h: "written", "aten", "generated", or a tile as
// "threads=128 rows=4 width=8". Segments that are not here run in the first way that there is.
using Choices = std::map<std::string, std::string>;

class GeneratedRun;

// How one segment runs.
struct SegmentWay {
  fusion::Segment segment;
  std::string how;       // "written", "library", "generated", "aten" or "pieces"
  std::string fallback;  // of pieces: "gemm2 | bias2+GELU | gemm3"; else ""
  Segment run;
  std::vector<std::shared_ptr<GeneratedRun>> generated;

  // The segments that did not run as one kernel: "pieces: gemm2 | bias2+GELU", "plain PyTorch, since ..."; "" if all did.
  std::string shortfall() const;
};

// Throws UsageError for a choice that the segment does not have.
SegmentWay way_of(fusion::Segment segment, const Target& target, const std::string& choice = {});

// The kernels that may run a segment, for rows of `tokens` tokens in each group, the default first. A single
// one leaves no choice.
std::vector<std::string> choices_of(fusion::Segment segment, const Target& target, DType dtype,
                                    int64_t tokens);

class SchemeProgram {
 public:
  // scheme: legal. Throws Error if it is not, UsageError for wrong choices.
  SchemeProgram(const fusion::Scheme& scheme, const Target& target, const Choices& choices = {});

  const Program& program() const { return program_; }
  const std::vector<SegmentWay>& ways() const { return ways_; }
  // The segments that did not run as one, each with its shortfall(); "": none.
  std::string shortfall() const;

 private:
  std::vector<SegmentWay> ways_;
  Program program_;
};

}  // namespace seqfuse::models::bert
