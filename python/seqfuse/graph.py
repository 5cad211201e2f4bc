"""Operators over the edges of a graph: weighted sums (SpMM), dot products (SDDMM), GAT attention."""

from __future__ import annotations

import torch
from torch import Tensor


class Graph:
    """A graph of N rows, M columns and E edges: row i receives from the columns that it lists.

    Made once by from_csr or from_edges, with its transpose for backward passes; immutable. Edges are in order of row,
    then of column: tensors [E] and [E, H] of the functions below are in this order. Errors are ValueErrors.

    rows, columns, edges: N, M, E. order: from_edges only: its edges in the graph's order, int64 [E], else None.
    """

    def __init__(self, offsets: Tensor, columns: Tensor, num_columns: int, order: Tensor | None, device):
        """For the functions below."""
        self.lists, self._part_edges = torch.ops.seqfuse.build_graph(
            offsets, columns, int(num_columns), torch.device(device)
        )
        self.rows, self.columns = len(offsets) - 1, int(num_columns)
        self.order = order

    @staticmethod
    def from_csr(offsets: Tensor, columns: Tensor, num_columns: int | None = None, *, device=None) -> Graph:
        """Row i lists columns[offsets[i]:offsets[i + 1]], ascending; a column may be listed more than once.

        offsets: [N + 1], columns: [E], int64 or int32. num_columns: N, device: that of columns, unless given.
        Checks all values and makes the transpose, on the CPU: for a graph on a GPU it waits for it.
        """
        num_columns = len(offsets) - 1 if num_columns is None else num_columns
        return Graph(offsets, columns, num_columns, None, columns.device if device is None else device)

    @staticmethod
    def from_edges(
        rows: Tensor, columns: Tensor, num_rows: int, num_columns: int | None = None, *, device=None
    ) -> Graph:
        """Edges (rows[e], columns[e]) in any order, int64 or int32 [E]; several may be the same.

        An edge_index of PyG, from source to target, is from_edges(edge_index[1], edge_index[0], nodes). Values of edges
        in the given order are values[graph.order] in the graph's. num_columns: num_rows unless given.
        """
        num_columns = num_rows if num_columns is None else num_columns
        if rows.dim() != 1 or rows.shape != columns.shape:
            raise ValueError(
                f"graph: rows is {list(rows.shape)} and columns {list(columns.shape)}; expected [E] for both"
            )
        for name, values, most in (("rows", rows, num_rows), ("columns", columns, num_columns)):
            if len(values) and not 0 <= int(values.min()) <= int(values.max()) < most:
                raise ValueError(
                    f"graph: {name} holds {int(values.min())} to {int(values.max())}; expected 0 to {most - 1}"
                )
        order = (rows.long() * num_columns + columns.long()).argsort(stable=True)
        counts = torch.bincount(rows.long(), minlength=num_rows)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        device = columns.device if device is None else torch.device(device)
        return Graph(offsets, columns.long()[order], num_columns, order.to(device), device)

    @property
    def device(self) -> torch.device:
        return self.lists[0].device

    @property
    def edges(self) -> int:
        return self.lists[1].shape[0]

    @property
    def offsets(self) -> Tensor:
        """int64 [N + 1]: where each row's edges begin."""
        return self.lists[0]

    @property
    def neighbours(self) -> Tensor:
        """int32 [E]: the column of each edge."""
        return self.lists[1]

    def to(self, device) -> Graph:
        """The same graph on another device."""
        graph = object.__new__(Graph)
        order = None if self.order is None else self.order.to(device)
        graph.__dict__.update(self.__dict__, lists=[part.to(device) for part in self.lists], order=order)
        return graph

    def to_dense(self, values: Tensor | None = None) -> Tensor:
        """[N, M] or, for values [E, H], [N, M, H]: values of the edges (1 unless given), summed if there are several.

        For tests and small graphs.
        """
        values = torch.ones(self.edges, device=self.device) if values is None else values
        row = torch.repeat_interleave(torch.arange(self.rows, device=self.device), self.offsets.diff())
        dense = values.new_zeros(self.rows, self.columns, *values.shape[1:])
        return dense.index_put((row, self.neighbours.long()), values, accumulate=True)

    @property
    def _sizes(self):
        return [self.rows, self.columns, self._part_edges]

    def __repr__(self):
        return f"Graph(rows={self.rows}, columns={self.columns}, edges={self.edges}, device='{self.device}')"


def spmm(graph: Graph, weights: Tensor | None, x: Tensor) -> Tensor:
    """out[i] = sum over the edges e = (i, j) of weights[e] * x[j]: a product with the graph's matrix.

    x: [M, d], or [M, H, d] with heads. weights: [E], or [E, H] with a weight for each head, or None: all 1.
    Returns [N, d] or [N, H, d]; rows without edges are 0. Differentiable in weights and x.
    CPU: float32 and float64. CUDA: float32, float16 and bfloat16, with sums in float32; the same bits in every run.
    Raises ValueError for wrong shapes, dtypes and devices.
    """
    _check_rank("spmm", x)
    by_head = weights is not None and weights.dim() == 2
    if by_head and x.dim() == 2:
        raise ValueError(
            f"spmm: weights is {list(weights.shape)}, for heads, but x is {list(x.shape)}; expected [M, H, d]"
        )
    one_head = x if by_head else x.flatten(1).unsqueeze(1)
    values = weights.unsqueeze(1) if weights is not None and weights.dim() == 1 else weights
    out = torch.ops.seqfuse.spmm(values, one_head, graph.lists, graph._sizes)
    return out if by_head else out.view(graph.rows, *x.shape[1:])


def sddmm(graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    """out[e] = <a[i], b[j]> for each edge e = (i, j): the elements of a b^T where the graph has edges.

    a: [N, d], b: [M, d], or [N, H, d] and [M, H, d] with heads. Returns [E] or [E, H]. Differentiable in both.
    dtypes, determinism and errors as in spmm.
    """
    _check_rank("sddmm", a)
    _check_rank("sddmm", b)
    if a.dim() == 3 or b.dim() == 3:
        return torch.ops.seqfuse.sddmm(a, b, graph.lists, graph._sizes)
    return torch.ops.seqfuse.sddmm(a.unsqueeze(1), b.unsqueeze(1), graph.lists, graph._sizes).squeeze(1)


def gat_attention(
    graph: Graph,
    a_l: Tensor,
    a_r: Tensor,
    x: Tensor,
    negative_slope: float = 0.2,
    *,
    dropout: float = 0.0,
    seed: int | None = None,
) -> Tensor:
    """out[i] = sum over the edges (i, j) of p_ij x[j], p = softmax over the edges of i of LeakyReLU(a_l[i] + a_r[j]).

    a_l: [N, H], a_r: [M, H], x: [M, H, d]; with one head also [N], [M] and [M, d]. The attention of a graph attention
    network, whose a_l and a_r are <a_1, x> and <a_2, x>. Returns [N, H, d] or [N, d]; rows without edges are 0.
    dropout: of p, with a mask that depends only on seed; seed: drawn from torch's CPU generator unless given, which
    torch.compile cannot trace. No tensor with an element for each edge and feature is made, in either pass.

    Differentiable in a_l, a_r and x. dtypes, determinism and errors as in spmm; on CUDA d is at most 256.
    """
    _check_rank("gat_attention", x)
    if dropout and seed is None:
        seed = int(torch.randint(2**62, ()))
    one_head = x.dim() == 2
    if one_head:
        a_l, a_r, x = a_l.unsqueeze(-1), a_r.unsqueeze(-1), x.unsqueeze(1)
    out = torch.ops.seqfuse.gat_attention(
        a_l, a_r, x, graph.lists, graph._sizes, float(negative_slope), float(dropout), seed or 0
    )
    return out.squeeze(1) if one_head else out


def _check_rank(op, x):
    if x.dim() not in (2, 3):
        raise ValueError(f"{op}: features are {list(x.shape)}; expected [nodes, d] or [nodes, heads, d]")
