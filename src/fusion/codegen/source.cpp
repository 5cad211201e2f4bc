#include "fusion/codegen/source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace seqfuse::fusion {
namespace {

const Node& node_of(int op) {
  return kGraph[static_cast<size_t>(op)];
}

// The operators before, at and after the reduction; without one, all are before.
struct Parts {
  std::vector<Op> before, after;
  bool reduces = false;
  Op reduction = Op::softmax;
};

Parts parts_of(Segment run) {
  Parts parts;
  for (int op = run.first; op <= run.last; ++op) {
    if (node_of(op).kind == OpKind::reduction) {
      parts.reduces = true;
      parts.reduction = static_cast<Op>(op);
    } else {
      (parts.reduces ? parts.after : parts.before).push_back(static_cast<Op>(op));
    }
  }
  return parts;
}

std::string names_of(Segment run) {
  std::string names;
  for (int op = run.first; op <= run.last; ++op)
    names += (names.empty() ? "" : ", ") + std::string(node_of(op).name);
  return names;
}

// A float32 literal.
std::string float_text(double value) {
  std::string text = fmt::format("{:.9g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

const char* plural(int64_t count) {
  return count == 1 ? "" : "s";
}

// Writes the source, line by line. Lines of a kernel's body are indented by the caller's text.
class Writer {
 public:
  Writer(const RowKernel& kernel, const Tile& tile)
      : kernel_(kernel), tile_(tile), parts_(parts_of(kernel.run)) {}

  std::string source() {
    head();
    conversions();
    if (has(Op::bias2_gelu)) activation();
    if (parts_.reduces) {
      row_reduction("row_sum", "sum", "0", "value + other");
      if (is_softmax())
        row_reduction("row_max", "largest value", "-infinity()", "fmaxf(value, other)");
    }
    signature();
    load();
    if (parts_.reduces) is_softmax() ? softmax() : norm();
    store();
    text_ += "}\n";
    return text_;
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  bool has(Op op) const {
    return kernel_.run.first <= index_of(op) && index_of(op) <= kernel_.run.last;
  }
  bool is_softmax() const { return parts_.reduces && parts_.reduction == Op::softmax; }
  bool has_operand(Operand operand) const {
    const auto operands = operands_of(kernel_.run);
    return std::find(operands.begin(), operands.end(), operand) != operands.end();
  }
  // Whether some thread has a piece that is not of the row.
  bool has_gaps() const {
    return kernel_.columns % (int64_t{tile_.row_threads()} * tile_.width) != 0;
  }
  int64_t pieces() const {
    const int64_t step = int64_t{tile_.row_threads()} * tile_.width;
    return (kernel_.columns + step - 1) / step;
  }

  void head() {
    line("// {}: rows of {} {} elements.", names_of(kernel_.run), kernel_.columns,
         seqfuse::name_of(kernel_.dtype));
    line(
        "// A block has {} row{} at a time. A row has {} threads, each with {} piece{} of {} "
        "neighbouring",
        tile_.rows, plural(tile_.rows), tile_.row_threads(), pieces(), plural(pieces()),
        tile_.width);
    line("// element{}, which stay in registers as float32.\n", plural(tile_.width));
    line("using Element = unsigned short;  // the bits of a {}\n", seqfuse::name_of(kernel_.dtype));
    line("constexpr int kColumns = {};", kernel_.columns);
    line("constexpr int kRows = {}, kRowThreads = {};", tile_.rows, tile_.row_threads());
    line("constexpr int kPieces = {}, kWidth = {};", pieces(), tile_.width);
    if (has_operand(Operand::mask)) line("constexpr int kHeads = {};", kernel_.heads);
    if (has(Op::transpose))
      line("constexpr int kHeads = {}, kHeadDim = {};", kernel_.heads, kernel_.head_dim);
    if (has_operand(Operand::norm_weight))
      line("constexpr float kEpsilon = {};", float_text(kernel_.epsilon));
    if (is_softmax()) line("constexpr float kLog2OfE = 1.44269504f;");
    line("\nstruct alignas(kWidth * sizeof(Element)) Piece {{\n  Element element[kWidth];\n}};\n");
    if (has_operand(Operand::mask))
      line("struct alignas(kWidth) Flags {{\n  unsigned char flag[kWidth];\n}};\n");
  }

  void conversions() {
    if (is_softmax() || has(Op::mask))
      line("__device__ float infinity() {{\n  return __int_as_float(0x7f800000);\n}}\n");
    line("__device__ float to_float(Element bits) {{");
    if (kernel_.dtype == DType::bf16) {
      line("  return __uint_as_float(static_cast<unsigned>(bits) << 16);\n}}\n");
      line("__device__ Element to_element(float value) {{\n  Element bits;");
      line("  asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(value));");
    } else {
      line("  float value;\n  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(value) : \"h\"(bits));");
      line("  return value;\n}}\n");
      line("__device__ Element to_element(float value) {{\n  Element bits;");
      line("  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(value));");
    }
    line("  return bits;\n}}\n");
    line("__device__ Piece piece_at(const Element* from) {{");
    line("  return *reinterpret_cast<const Piece*>(from);\n}}\n");
  }

  void activation() {
    switch (kernel_.activation) {
      case ActivationKind::gelu_erf:
        line("// GELU: v times the share of a normal distribution below v.");
        line("__device__ float activation(float v) {{");
        line("  return 0.5f * v * (1 + erff(0.707106781f * v));\n}}\n");
        return;
      case ActivationKind::gelu_tanh:
        line("// GELU, approximated with tanh: v sigmoid(1.5957691 (v + 0.044715 v^3)).");
        line("__device__ float activation(float v) {{");
        line("  return v / (1 + __expf(-1.59576912f * (v + 0.044715f * v * v * v)));\n}}\n");
        return;
      case ActivationKind::relu:
        line("__device__ float activation(float v) {{\n  return v < 0 ? 0 : v;\n}}\n");
        return;
    }
  }

  void row_reduction(const char* name, const char* what, const char* start, const char* combined) {
    line("// The {} over the threads of a row, in each of them.", what);
    line("__device__ float {}(float value) {{", name);
    line("#pragma unroll\n  for (int distance = 16; distance > 0; distance /= 2) {{");
    line("    const float other = __shfl_xor_sync(0xffffffff, value, distance);");
    line("    value = {};\n  }}", combined);
    if (tile_.row_threads() > 32) {
      line("  constexpr int kWarps = kRowThreads / 32;  // of a row");
      line("  __shared__ float of_warp[kRows * kWarps];");
      line("  __syncthreads();  // earlier values have been read");
      line("  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;");
      line("  __syncthreads();");
      line("  const int first = threadIdx.x / kRowThreads * kWarps;");
      line("  value = {};", start);
      line("#pragma unroll\n  for (int warp = 0; warp < kWarps; ++warp) {{");
      line("    const float other = of_warp[first + warp];");
      line("    value = {};\n  }}", combined);
    }
    line("  return value;\n}}\n");
  }

  void signature() {
    line("extern \"C\" __global__ void __launch_bounds__({})\n{}(", tile_.threads,
         fusion::name_of(kernel_.run));
    for (const Operand operand : operands_of(kernel_.run)) {
      const char* type = operand == Operand::mask     ? "const unsigned char*"
                         : operand == Operand::output ? "Element*"
                                                      : "const Element*";
      line("    {} __restrict__ {},", type, fusion::name_of(operand));
    }
    const Extra extra = extra_of(kernel_.run);
    line("    long long rows{}", extra == Extra::length      ? ",\n    long long length) {"
                                 : extra == Extra::mask_rows ? ",\n    long long mask_rows) {"
                                                             : ") {");
    line("  const int lane = threadIdx.x % kRowThreads;");
    line(
        "  const long long row = blockIdx.x * static_cast<long long>(kRows) + threadIdx.x / "
        "kRowThreads;");
    if (has(Op::mask)) {
      line(
          "  // Rows are queries, head by head; a query has the same mask in all heads of its "
          "group.");
      line("  const long long mask_row = row / (kHeads * kColumns) * mask_rows + row % kColumns;");
    }
    if (has(Op::transpose)) line("  const long long group = row / length, token = row % length;");
    // Threads of rows that are not there stay, since all must reach each __syncthreads().
    if (barriers()) {
      line("  const bool inside = row < rows;");
    } else {
      line("  if (row >= rows) return;");
    }
    line("  float value[kPieces][kWidth];\n");
  }

  bool barriers() const { return parts_.reduces && tile_.row_threads() > 32; }

  void begin_pieces() {
    line("#pragma unroll\n  for (int p = 0; p < kPieces; ++p) {{");
    line("    const int column = (p * kRowThreads + lane) * kWidth;");
  }
  std::string outside() const {
    const std::string gap = has_gaps() ? "column >= kColumns" : "";
    if (!barriers()) return gap;
    return gap.empty() ? "!inside" : "!inside || " + gap;
  }
  static void begin_elements(std::string& text) {
    text += "#pragma unroll\n    for (int k = 0; k < kWidth; ++k) {\n";
  }

  void load_piece(const char* variable, Operand operand, const char* at) {
    line("    const Piece {} = piece_at({} + {});", variable, fusion::name_of(operand), at);
  }
  void load_pieces_of(Op op) {
    switch (op) {
      case Op::mask:
        line(
            "    const Flags seen = *reinterpret_cast<const Flags*>(mask + mask_row * kColumns + "
            "column);");
        return;
      case Op::bias1_residual:
      case Op::bias3_residual:
        load_piece("b", Operand::bias, "column");
        load_piece("r", Operand::residual, "row * kColumns + column");
        return;
      case Op::bias0_split:
      case Op::bias2_gelu:
        load_piece("b", Operand::bias, "column");
        return;
      default:
        return;
    }
  }
  // The statement that applies an elementwise operator to v.
  void apply(Op op) {
    switch (op) {
      case Op::mask:
        line("      if (!seen.flag[k]) v = -infinity();");
        return;
      case Op::bias1_residual:
      case Op::bias3_residual:
        line("      v += to_float(b.element[k]);");
        line("      v += to_float(r.element[k]);");
        return;
      case Op::bias0_split:
        line("      v += to_float(b.element[k]);");
        return;
      case Op::bias2_gelu:
        line("      v = activation(v + to_float(b.element[k]));");
        return;
      default:
        return;
    }
  }

  // value = the operators before the reduction, of the input.
  void load() {
    begin_pieces();
    if (const std::string gap = outside(); !gap.empty()) {
      line("    if ({}) {{", gap);
      begin_elements(text_);
      line("        value[p][k] = {};\n      }}\n      continue;\n    }}",
           is_softmax() ? "-infinity()" : "0");
    }
    if (has(Op::transpose)) {
      line("    const int head = column / kHeadDim;");
      load_piece("x", Operand::input,
                 "((group * kHeads + head) * length + token) * kHeadDim + column % kHeadDim");
    } else {
      load_piece("x", Operand::input, "row * kColumns + column");
    }
    for (const Op op : parts_.before) load_pieces_of(op);
    begin_elements(text_);
    line("      float v = to_float(x.element[k]);");
    for (const Op op : parts_.before) apply(op);
    line("      value[p][k] = v;\n    }}\n  }}\n");
  }

  // A loop over all elements of a thread, outside the row or not.
  void each_element(const char* statement) {
    line("#pragma unroll\n  for (int p = 0; p < kPieces; ++p) {{");
    begin_elements(text_);
    line("      {}\n    }}\n  }}", statement);
  }

  void norm() {
    line("  float sum = 0;");
    each_element("sum += value[p][k];");
    line("  const float mean = row_sum(sum) / kColumns;");
    line("  float squares = 0;");
    if (has_gaps()) {
      begin_pieces();
      line("    if (column >= kColumns) continue;");
      begin_elements(text_);
      line("      squares += (value[p][k] - mean) * (value[p][k] - mean);\n    }}\n  }}");
    } else {
      each_element("squares += (value[p][k] - mean) * (value[p][k] - mean);");
    }
    line("  const float scale = rsqrtf(row_sum(squares) / kColumns + kEpsilon);\n");
  }

  void softmax() {
    line("  float largest = -infinity();");
    each_element("largest = fmaxf(largest, value[p][k]);");
    line("  largest = row_max(largest);");
    line("  if (largest == -infinity()) largest = 0;  // the row sees nothing: all become 0");
    line("  float sum = 0;");
    line("#pragma unroll\n  for (int p = 0; p < kPieces; ++p) {{");
    begin_elements(text_);
    line("      value[p][k] = exp2f((value[p][k] - largest) * kLog2OfE);");
    line("      sum += value[p][k];\n    }}\n  }}");
    line("  sum = row_sum(sum);");
    line("  const float scale = sum > 0 ? 1 / sum : sum;  // NaN stays\n");
  }

  void store() {
    if (barriers()) line("  if (!inside) return;");
    begin_pieces();
    if (has_gaps()) line("    if (column >= kColumns) continue;");
    const bool norms = parts_.reduces && !is_softmax();
    if (norms) {
      load_piece("w", Operand::norm_weight, "column");
      load_piece("c", Operand::norm_bias, "column");
    }
    for (const Op op : parts_.after) load_pieces_of(op);
    line("    Piece y;");
    begin_elements(text_);
    if (norms) {
      line("      float v = (value[p][k] - mean) * scale;");
      line("      v = v * to_float(w.element[k]) + to_float(c.element[k]);");
    } else {
      line("      {} v = value[p][k]{};", parts_.after.empty() ? "const float" : "float",
           is_softmax() ? " * scale" : "");
    }
    for (const Op op : parts_.after) apply(op);
    line("      y.element[k] = to_element(v);\n    }}");
    line("    *reinterpret_cast<Piece*>(output + row * kColumns + column) = y;\n  }}");
  }

  const RowKernel& kernel_;
  const Tile tile_;
  const Parts parts_;
  std::string text_;
};

}  // namespace

std::string source_of(const RowKernel& kernel, const Tile& tile) {
  SEQFUSE_CHECK(can_generate(kernel.run), "operators {} to {} are no generated kernel",
                kernel.run.first, kernel.run.last);
  if (const std::string why = why_unfit(kernel, tile); !why.empty())
    throw_error("a kernel for {}: {}", names_of(kernel.run), why);
  return Writer(kernel, tile).source();
}

}  // namespace seqfuse::fusion
