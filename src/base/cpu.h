// The processor: its name, what it can do, and what this build needs of it.
#pragma once

#include <string>
#include <vector>

namespace seqfuse {

struct Cpu {
  std::string model;                  // "AMD EPYC 7B13"; "" where the system does not say
  std::vector<std::string> features;  // as in /proc/cpuinfo: "avx2", "avx512f", ...
};

Cpu this_cpu();

// Instruction sets that the CPU operators of this build use, of those that matter to them.
std::vector<std::string> built_for_features();

// Those of them that the processor lacks: operators would end in an illegal instruction.
std::vector<std::string> missing_features(const Cpu& cpu);

}  // namespace seqfuse
