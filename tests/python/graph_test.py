"""seqfuse.Graph and the operators over its edges against dense PyTorch: random graphs, and Cora and Citeseer.

SEQFUSE_GRAPH_DATA names a folder with gnnbench_cora.npz and gnnbench_citeseer.npz; without it those are skipped.
"""

import os
import pathlib

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

import seqfuse
from seqfuse import Graph


def random_edges(rows, columns, share=0.1):
    """Edges without repeats, a row of all columns, and rows without edges."""
    dense = torch.rand(rows, columns) < share
    dense[rows // 2] = True
    dense[::5] = False
    return dense.nonzero().T


def dense_gat(graph, a_l, a_r, x, slope=0.2):
    """gat_attention through a softmax over all columns, for graphs without repeated edges."""
    allowed = graph.to_dense().bool()[..., None].to(x.device)
    sees = allowed.any(1, keepdim=True)
    scores = F.leaky_relu(a_l[:, None] + a_r[None], slope).masked_fill(~allowed & sees, -torch.inf)
    weights = scores.softmax(1).masked_fill(~sees, 0)
    return torch.einsum("nmh,mhd->nhd", weights, x)


def both(ours, dense, *leaves):
    """Results and gradients of two functions of the same leaves."""
    found = []
    for function in (ours, dense):
        leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
        out = function(*leaves)
        torch.manual_seed(2)
        factors = torch.randn(out.shape, dtype=torch.double).to(out)
        found.append((out.detach(), torch.autograd.grad((out * factors).sum(), leaves)))
    return found


def random(*sizes, device="cpu"):
    return torch.randn(*sizes, dtype=torch.double if device == "cpu" else torch.float, device=device)


@pytest.mark.parametrize(("rows", "columns"), [(60, 60), (40, 90), (1, 5)])
def test_operators_are_dense_products(rows, columns, device):
    edges = random_edges(rows, columns)
    shuffled = edges[:, torch.randperm(edges.shape[1])]
    graph = Graph.from_edges(*shuffled, rows, columns).to(device)
    row, column = edges.to(device)
    tolerance = {} if device == "cpu" else {"rtol": 1e-4, "atol": 1e-4}

    def compare(ours, dense, *leaves):
        torch.testing.assert_close(*both(ours, dense, *leaves), **tolerance)

    weights, x = random(graph.edges, 3, device=device), random(columns, 3, 8, device=device)
    compare(
        lambda w, x: seqfuse.spmm(graph, w, x),
        lambda w, x: torch.einsum("nmh,mhd->nhd", graph.to_dense(w), x),
        *(weights, x),
    )
    # One weight for all heads, no heads, no weights.
    compare(
        lambda w, x: seqfuse.spmm(graph, w, x),
        lambda w, x: torch.einsum("nm,mhd->nhd", graph.to_dense(w), x),
        *(weights[:, 0], x),
    )
    compare(lambda w, x: seqfuse.spmm(graph, w, x), lambda w, x: graph.to_dense(w) @ x, weights[:, 0], x[:, 0])
    compare(lambda x: seqfuse.spmm(graph, None, x), lambda x: graph.to_dense().to(x) @ x, x[:, 0])
    a = random(rows, 3, 8, device=device)
    compare(lambda a, b: seqfuse.sddmm(graph, a, b), lambda a, b: (a[row] * b[column]).sum(-1), a, x)
    compare(lambda a, b: seqfuse.sddmm(graph, a, b), lambda a, b: (a @ b.T)[row, column], a[:, 0], x[:, 0])
    a_l, a_r = random(rows, 3, device=device), random(columns, 3, device=device)
    compare(lambda *t: seqfuse.gat_attention(graph, *t), lambda *t: dense_gat(graph, *t), a_l, a_r, x)
    compare(
        lambda *t: seqfuse.gat_attention(graph, *t, 0.5),
        lambda a_l, a_r, x: dense_gat(graph, a_l[:, None], a_r[:, None], x[:, None], 0.5)[:, 0],
        *(a_l[:, 0], a_r[:, 0], x[:, 0]),
    )


def test_edges_may_repeat_and_come_in_any_order():
    rows, columns, weights = torch.tensor([2, 0, 2, 0, 2]), torch.tensor([1, 3, 1, 0, 0]), torch.randn(5)
    graph = Graph.from_edges(rows, columns, 3, 4)
    assert graph.offsets.tolist() == [0, 2, 2, 5]
    assert graph.neighbours.tolist() == [0, 3, 0, 1, 1]
    dense = torch.zeros(3, 4).index_put((rows, columns), weights, accumulate=True)
    torch.testing.assert_close(graph.to_dense(weights[graph.order]), dense)
    x = torch.randn(4, 5)
    torch.testing.assert_close(seqfuse.spmm(graph, weights[graph.order], x), dense @ x)
    assert repr(graph) == "Graph(rows=3, columns=4, edges=5, device='cpu')"


def test_dropout_keeps_the_mean():
    graph = Graph.from_edges(*random_edges(50, 50, 0.5), 50)
    a_l, a_r, x = torch.randn(50, 4), torch.randn(50, 4), torch.ones(50, 4, 1)

    def attend(**options):
        return seqfuse.gat_attention(graph, a_l, a_r, x, **options)

    torch.testing.assert_close(attend(dropout=0.6, seed=3), attend(dropout=0.6, seed=3))
    assert not torch.equal(attend(dropout=0.6, seed=3), attend(dropout=0.6, seed=4))
    assert not torch.equal(attend(dropout=0.6), attend(dropout=0.6))
    mean = torch.stack([attend(dropout=0.6) for _ in range(200)]).mean()
    assert abs(mean - attend().mean()) < 0.02


def test_compiles_once_for_all_graphs():
    counter = CompileCounterWithBackend("aot_eager")

    def attend(graph, a_l, a_r, x):
        return seqfuse.gat_attention(graph, a_l, a_r, seqfuse.spmm(graph, None, x * 2)).square()

    compiled = torch.compile(attend, backend=counter, fullgraph=True)
    counts = []
    # PyTorch compiles sizes of 0 and 1 apart, so each graph here has several long rows and columns.
    for n in (130, 200, 165, 300):
        graph = Graph.from_edges(*random_edges(n, n, 0.4), n)
        inputs = [t.requires_grad_() for t in (torch.randn(n, 2), torch.randn(n, 2), torch.randn(n, 2, 4))]
        expected = torch.autograd.grad(attend(graph, *inputs).sum(), inputs)
        torch.testing.assert_close(torch.autograd.grad(compiled(graph, *inputs).sum(), inputs), expected)
        counts.append(counter.frame_count)
    assert counts[2:] == [counts[1]] * 2  # once for the first graph, at most once more


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: Graph.from_csr(t([0, 2]), t([3, 1]), 4), "row 0 lists column 1 after 3; expected ascending"),
        (lambda t: Graph.from_csr(t([0, 1]), t([4]), 4), "row 0 lists column 4; expected 0 to 3"),
        (lambda t: Graph.from_csr(t([0, 3, 2]), t([0, 1])), "offsets decreases from 3 to 2 at row 1"),
        (lambda t: Graph.from_csr(t([0, 1]), t([0, 1]), 4), "offsets ends with 1 but there are 2 columns"),
        (lambda t: Graph.from_csr(t([0, 1]), t([0.5])), "columns is Float; expected Long or Int"),
        (lambda t: Graph.from_edges(t([0, 1]), t([0]), 2), r"rows is \[2\] and columns \[1\]; expected \[E\]"),
        (lambda t: Graph.from_edges(t([0, 2]), t([0, 1]), 2), "rows holds 0 to 2; expected 0 to 1"),
        (lambda t: Graph.from_edges(t([0]), t([-1]), 2), "columns holds -1 to -1; expected 0 to 1"),
    ],
)
def test_wrong_graphs_are_explained(make, message):
    with pytest.raises(ValueError, match=message):
        make(torch.tensor)


def test_wrong_arguments_are_explained():
    graph = Graph.from_csr(torch.tensor([0, 1, 2]), torch.tensor([0, 2]), 3)
    x = torch.randn(3, 4)
    with pytest.raises(ValueError, match=r"spmm: x is \[2, 1, 4\], but the graph has 3 columns; expected a row"):
        seqfuse.spmm(graph, None, x[:2])
    with pytest.raises(ValueError, match=r"spmm: weights is \[2, 2\], for heads, but x is \[3, 4\]; expected"):
        seqfuse.spmm(graph, torch.randn(2, 2), x)
    with pytest.raises(ValueError, match=r"sddmm: features are \[4\]; expected \[nodes, d\] or \[nodes, heads, d\]"):
        seqfuse.sddmm(graph, x[0], x)
    with pytest.raises(ValueError, match="a_l is Double on cpu; expected Float on cpu, like x"):
        seqfuse.gat_attention(graph, torch.randn(2).double(), torch.randn(3), x)


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_real_graphs(name):
    folder = os.environ.get("SEQFUSE_GRAPH_DATA")
    if not folder:
        pytest.skip("set SEQFUSE_GRAPH_DATA to a folder with gnnbench_cora.npz and gnnbench_citeseer.npz")
    data = numpy.load(pathlib.Path(folder) / f"gnnbench_{name}.npz", allow_pickle=True)
    nodes = len(data["labels"])
    row = torch.repeat_interleave(torch.arange(nodes), torch.from_numpy(data["adj_indptr"]).diff())
    # In both directions, with self-loops.
    dense = torch.eye(nodes, dtype=torch.bool).index_put(
        (row, torch.from_numpy(data["adj_indices"]).long()), torch.tensor(True)
    )
    dense = dense | dense.T
    row, column = dense.nonzero().T
    graph = Graph.from_csr(torch.cat([torch.zeros(1).long(), dense.sum(1).cumsum(0)]), column)
    weights, a = torch.rand(graph.edges, 1).double(), random(graph.rows, 2, 16)
    for ours, plain, leaves in (
        (
            lambda w, x: seqfuse.spmm(graph, w, x),
            lambda w, x: (graph.to_dense(w[:, 0]) @ x[:, 0])[:, None],
            (weights, a[:, :1]),
        ),
        (lambda a, b: seqfuse.sddmm(graph, a, b), lambda a, b: (a[row] * b[column]).sum(-1), (a, random(*a.shape))),
        (
            lambda *t: seqfuse.gat_attention(graph, *t),
            lambda *t: dense_gat(graph, *t),
            (random(graph.rows, 2), random(graph.rows, 2), a),
        ),
    ):
        torch.testing.assert_close(*both(ours, plain, *leaves))
