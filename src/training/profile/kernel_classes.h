// Classifies GPU kernels by name.
#pragma once

#include <string_view>

namespace seqfuse::training {

enum class KernelClass {
  attention_forward,
  attention_backward,  // with gradients of biases, and the lists of tiles of both passes
  products,
  norms,
  embeddings,  // with jagged sequences and encodings
  loss,
  optimizer,
  communication,
  copies,
  other,
};

// name: as reported by a profiler, demangled or not. Unknown kernels are other.
KernelClass kernel_class(std::string_view name);

const char* name_of(KernelClass kernel_class);

}  // namespace seqfuse::training
