#include "ops/torch/graph/graph.h"

#include <memory>
#include <span>

#include "base/error.h"
#include "ops/kernels/graph/csr_graph.h"
#include "ops/torch/checks.h"
#include "ops/torch/dispatch.h"

namespace seqfuse::ops {
namespace {

constexpr size_t kGraphLists = 13;

Tensor int64_on_cpu(const char* name, const Tensor& given) {
  const Arg arg{"graph", name, given};
  check_rank(arg, 1, name[0] == 'o' ? "[rows + 1]" : "[edges]");
  const auto type = given.scalar_type();
  TORCH_CHECK_VALUE(type == at::kLong || type == at::kInt, label(arg), " is ", type,
                    "; expected Long or Int (int64, int32)");
  return given.to(at::kCPU, at::kLong).contiguous();
}

std::span<const int64_t> values_of(const Tensor& t) {
  return {t.const_data_ptr<int64_t>(), static_cast<size_t>(t.numel())};
}

CsrGraph make_checked(const Tensor& offsets, const Tensor& column, int64_t columns) {
  try {
    return make_csr_graph(values_of(offsets), values_of(column), columns);
  } catch (const Error& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

// Reads the lists one after the other, checking each.
class ListReader {
 public:
  ListReader(const char* op, at::TensorList lists, at::Device device)
      : op_(op), lists_(lists), device_(device) {}

  template <class T>
  const T* next(const char* name, int64_t size) {
    const Tensor& list = lists_[at_++];
    const Arg arg{op_, name, list};
    TORCH_CHECK_VALUE(list.device() == device_, op_, ": the graph is on ", list.device(),
                      " and the features on ", device_, "; move the graph with graph.to(x.device)");
    constexpr auto kType = c10::CppTypeToScalarType<T>::value;
    TORCH_CHECK_VALUE(list.dim() == 1 && list.scalar_type() == kType && list.is_contiguous(),
                      label(arg), " is ", list.scalar_type(), " ", list.sizes(), "; expected ",
                      kType, " [", size, "], contiguous");
    check_sizes(arg, {size}, "as the graph's sizes and its other lists say");
    return list.const_data_ptr<T>();
  }

  EdgeLists direction(int64_t rows, int64_t edges, int64_t part_edges, bool numbered) {
    const size_t more = numbered ? 1 : 0;
    EdgeLists lists{.rows = rows,
                    .edges = edges,
                    .part_edges = part_edges,
                    .parts = lists_[at_ + 2 + more].numel(),
                    .long_rows = lists_[at_ + 4 + more].numel()};
    lists.begin = next<int64_t>("begin", rows + 1);
    lists.neighbour = next<int32_t>("neighbour", edges);
    if (numbered) lists.edge = next<int64_t>("edge", edges);
    lists.part_row = next<int32_t>("part_row", lists.parts);
    lists.part_begin = next<int64_t>("part_begin", lists.parts);
    lists.long_row = next<int32_t>("long_row", lists.long_rows);
    lists.long_begin = next<int32_t>("long_begin", lists.long_rows + 1);
    return lists;
  }

 private:
  const char* op_;
  at::TensorList lists_;
  at::Device device_;
  size_t at_ = 0;
};

}  // namespace

GraphTensors build_graph(const Tensor& offsets_in, const Tensor& column_in, int64_t columns,
                         at::Device device) {
  const Tensor offsets = int64_on_cpu("offsets", offsets_in);
  const Tensor column = int64_on_cpu("columns", column_in);
  const auto kept = std::make_shared<CsrGraph>(make_checked(offsets, column, columns));
  std::vector<Tensor> lists;
  const auto add = [&]<class T>(std::vector<T>& values) {
    const auto size = static_cast<int64_t>(values.size());
    constexpr auto kType = c10::CppTypeToScalarType<T>::value;
    lists.push_back((size == 0 ? at::empty({0}, kType)
                               : at::from_blob(
                                     values.data(), {size}, [kept](void*) {}, kType))
                        .to(device));
  };
  const auto add_direction = [&](EdgeListArrays& arrays, bool numbered) {
    add(arrays.begin);
    add(arrays.neighbour);
    if (numbered) add(arrays.edge);
    add(arrays.part_row);
    add(arrays.part_begin);
    add(arrays.long_row);
    add(arrays.long_begin);
  };
  add_direction(kept->by_row, false);
  add_direction(kept->by_column, true);
  return {
      .lists = lists, .rows = kept->rows, .columns = kept->columns, .part_edges = kept->part_edges};
}

GraphView checked_graph(const char* op, at::TensorList lists, at::IntArrayRef sizes,
                        at::Device device) {
  TORCH_CHECK_VALUE(lists.size() == kGraphLists && sizes.size() == 3, op, ": the graph has ",
                    lists.size(), " lists and ", sizes.size(), " sizes; expected ", kGraphLists,
                    " and 3, as in a Graph");
  const int64_t edges = lists[kNeighbourList].numel();
  ListReader reader(op, lists, device);
  GraphView view;
  view.by_row = reader.direction(sizes[0], edges, sizes[2], false);
  view.by_column = reader.direction(sizes[1], edges, sizes[2], true);
  return view;
}

// Not an operator to trace: the sizes of its results depend on values. Returns the lists, and the
// last of the graph's sizes, which the others are known for.
TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def(
      "build_graph(Tensor offsets, Tensor columns, int num_columns, Device device) -> "
      "(Tensor[], int)");
  library.impl(
      "build_graph",
      torch::dispatch(
          c10::DispatchKey::CompositeExplicitAutograd,
          [](const Tensor& offsets, const Tensor& column, int64_t columns, at::Device device) {
            const GraphTensors graph = build_graph(offsets, column, columns, device);
            return std::make_tuple(graph.lists, graph.part_edges);
          }));
}

}  // namespace seqfuse::ops
