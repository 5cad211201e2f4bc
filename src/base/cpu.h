// The processor: its name, its instruction sets, and those that this build requires.
#pragma once

#include <string>
#include <vector>

namespace seqfuse {

struct Cpu {
  std::string model;                  // "AMD EPYC 7B13"; "" if unknown
  std::vector<std::string> features;  // as in /proc/cpuinfo: "avx2", "avx512f", ...
};

Cpu this_cpu();

// The vector instruction sets that the CPU operators of this build use.
std::vector<std::string> built_for_features();

// Those of them that the processor lacks; operators would fail with an illegal instruction.
std::vector<std::string> missing_features(const Cpu& cpu);

}  // namespace seqfuse
