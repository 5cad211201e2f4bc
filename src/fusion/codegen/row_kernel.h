// Kernels that are generated: runs of neighbouring elementwise, reduction and layout operators, each as
// one pass over the rows of a matrix.
//
// A kernel is described by its operators and what its source depends on (RowKernel), and by how the work
// is divided (Tile). source.h turns both into CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "fusion/scheme.h"

namespace seqfuse::fusion {

enum class ActivationKind : int8_t { gelu_erf, gelu_tanh, relu };

struct RowKernel {
  Segment run;               // can_generate(run)
  DType dtype = DType::f16;  // of all values: f16 or bf16
  int64_t columns = 0;       // of a row; of mask and softmax: keys, and also queries
  int64_t heads = 1;         // read by mask and transpose
  int64_t head_dim = 1;      // read by transpose; columns = heads * head_dim
  ActivationKind activation = ActivationKind::gelu_erf;  // read by bias2+GELU
  double epsilon = 1e-12;                                // read by norms

  bool operator==(const RowKernel&) const = default;
};

// How a block of threads works: on some rows at once, with equally many threads for each, which move
// `width` neighbouring elements by one instruction.
struct Tile {
  int threads = 128;  // of a block
  int rows = 1;       // of a block
  int width = 8;

  int row_threads() const { return threads / rows; }
  bool operator==(const Tile&) const = default;
};

// "threads=128 rows=4 width=8", and back; throws UsageError.
std::string text_of(const Tile& tile);
Tile read_tile(std::string_view text);

// The arguments of a kernel, in this order: pointers to its operands, then the number of rows, then its
// extra number, if it has one.
enum class Operand : int8_t {
  input,  // what the first operator reads: [rows, columns], with transpose [groups, heads, length, d]
  mask,         // one byte a pair: [groups or 1, columns, columns]
  bias,         // [columns]
  residual,     // [rows, columns]
  norm_weight,  // [columns]
  norm_bias,    // [columns]
  output,       // [rows, columns]; overlaps nothing
};
enum class Extra : int8_t {
  none,
  mask_rows,  // rows of the mask from group to group: 0 if all groups have one mask
  length,     // tokens of a group
};

// Whether operators can be one generated kernel: none is a GEMM, at most one is a reduction, a layout
// operator comes first.
bool can_generate(Segment run);

std::vector<Operand> operands_of(Segment run);
Extra extra_of(Segment run);
const char* name_of(Operand operand);
// The kernel's name in the source: "bias1_residual_norm1".
std::string name_of(Segment run);

// Why this tile does not fit the kernel; "": it fits.
std::string why_unfit(const RowKernel& kernel, const Tile& tile);
// A tile that fits. Throws Error for rows that are too long for registers (about 65,000 elements).
Tile default_tile(const RowKernel& kernel);
// Tiles worth trying, the default first.
std::vector<Tile> tiles_of(const RowKernel& kernel);

}  // namespace seqfuse::fusion
