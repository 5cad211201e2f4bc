// What a GPU kernel does for training, told by its name.
#pragma once

#include <string_view>

namespace seqfuse::training {

enum class KernelClass {
  attention_forward,
  attention_backward,  // with gradients of biases, and lists of tiles, which both passes make
  products,
  norms,
  embeddings,  // with jagged sequences and encodings
  loss,
  optimizer,
  communication,
  copies,
  other,
};

// name: as a profiler gives it, demangled or not. What no rule knows is other.
KernelClass kernel_class(std::string_view name);

const char* name_of(KernelClass kernel_class);

}  // namespace seqfuse::training
