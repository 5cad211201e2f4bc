"""Trains the two-layer graph attention network of Velickovic et al. (2018) on Cora, in plain PyTorch with seqfuse.

python examples/gat_cora.py DATA/gnnbench_cora.npz [--epochs 1000] [--seeds 1] [--device cuda]

The file is Cora as gnn-benchmark publishes it (https://github.com/shchur/gnn-benchmark): adj_* and attr_* of CSR
matrices, and labels. As in the paper: 8 heads of 8 features with ELU, one head for the classes, dropout of .6 on
features and attention, Adam with a rate of .005 and a decay of 5e-4, 20 labelled papers of each class, 500 for early
stopping and 1,000 for the test. The papers of each set are drawn by the seed, since the file has no sets.
"""

import argparse
import pathlib
import statistics
import time

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional

import seqfuse
from seqfuse import Graph


class GATLayer(nn.Module):
    """The attention of every head among the neighbours of each node, and the weight before it [width, heads * dim]."""

    def __init__(self, width: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.weight = nn.Parameter(torch.empty(width, heads * head_dim))
        self.left, self.right = (nn.Parameter(torch.empty(heads, head_dim)) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(heads, head_dim))
        for parameter, ends in (
            (self.weight, sum(self.weight.shape)),
            (self.left, head_dim + 1),
            (self.right, head_dim + 1),
        ):
            nn.init.uniform_(parameter, -((6 / ends) ** 0.5), (6 / ends) ** 0.5)

    def forward(self, graph: Graph, product: Tensor) -> Tensor:
        """product: features times the weight. Returns [N, heads * head_dim]."""
        h = product.view(-1, *self.bias.shape)
        a_l, a_r = (h * self.left).sum(-1), (h * self.right).sum(-1)
        attended = seqfuse.gat_attention(graph, a_l, a_r, h, dropout=self.dropout if self.training else 0.0)
        return (attended + self.bias).flatten(1)


class GAT(nn.Module):
    """Papers to the scores of classes [N, classes]."""

    def __init__(self, words: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.hidden = GATLayer(words, 8, 8, dropout)
        self.classes = GATLayer(64, 1, classes, dropout)

    def forward(self, graph: Graph, words: Graph, values: Tensor) -> Tensor:
        """words: which words each paper has, with their values: sparse features, whose product is spmm."""
        h = seqfuse.spmm(words, functional.dropout(values, self.dropout, self.training), self.hidden.weight)
        h = functional.elu(self.hidden(graph, h))
        return self.classes(graph, functional.dropout(h, self.dropout, self.training) @ self.classes.weight)


def load(file: pathlib.Path) -> tuple[Graph, Graph, Tensor, Tensor]:
    """Citations in both directions with self-loops, words of papers and their values, which sum to 1, and labels."""
    data = numpy.load(file, allow_pickle=True)

    def entries(name: str) -> tuple[Tensor, Tensor]:
        offsets, columns = (torch.from_numpy(data[f"{name}_{part}"]).long() for part in ("indptr", "indices"))
        return torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets.diff()), columns

    nodes = len(data["labels"])
    (row, column), every = entries("adj"), torch.arange(nodes)
    rows, columns = torch.cat([row, column, every]), torch.cat([column, row, every])
    once = torch.unique(rows * nodes + columns)  # an edge once, whatever the file says
    paper, word = entries("attr")
    values = torch.from_numpy(data["attr_data"])
    values = values / torch.zeros(nodes).index_add(0, paper, values)[paper]
    words = Graph.from_edges(paper, word, nodes, int(data["attr_shape"][1]))
    citations = Graph.from_edges(once // nodes, once % nodes, nodes)
    return citations, words, values[words.order], torch.from_numpy(data["labels"]).long()


def draw_sets(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes for training, 20 of each class, early stopping and the test."""
    order = torch.randperm(len(labels))
    train = torch.cat([order[labels[order] == c][:20] for c in labels.unique()])
    rest = order[~torch.isin(order, train)]
    return train, rest[:500], rest[500:1500]


def run(graph: Graph, words: Graph, values: Tensor, labels: Tensor, options: argparse.Namespace) -> tuple[float, int]:
    """Accuracy on the test set at the epoch of the least validation loss, and that epoch."""
    train, validation, test = draw_sets(labels.cpu())
    model = GAT(words.columns, int(labels.max()) + 1, options.dropout).to(values.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    best, accuracy, at = float("inf"), 0.0, 0
    for epoch in range(1, options.epochs + 1):
        model.train()
        optimizer.zero_grad()
        functional.cross_entropy(model(graph, words, values)[train], labels[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            scores = model(graph, words, values)
        loss = float(functional.cross_entropy(scores[validation], labels[validation]))
        if loss < best:
            right = scores[test].argmax(1) == labels[test]
            best, accuracy, at = loss, float(right.float().mean()), epoch
        if epoch - at >= options.patience:
            break
    return accuracy, at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=1000, help="at most (default 1000)")
    parser.add_argument("--patience", type=int, default=100, help="epochs without a better validation loss")
    parser.add_argument("--dropout", type=float, default=0.6)
    parser.add_argument("--seeds", type=int, default=1, help="runs, with seeds 1, 2, … (default 1)")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    inputs = load(options.data)
    print(f"{inputs[0]}, {inputs[1].columns} words, {int(inputs[3].max()) + 1} classes")
    inputs = [part.to(options.device) for part in inputs]
    found = []
    for seed in range(1, options.seeds + 1):
        torch.manual_seed(seed)
        start = time.monotonic()
        accuracy, epoch = run(*inputs, options)
        found.append(accuracy)
        print(f"seed {seed}  test accuracy {accuracy:.4f}  epoch {epoch}  {time.monotonic() - start:.1f} s", flush=True)
    if len(found) > 1:
        print(f"mean {statistics.mean(found):.4f}  standard deviation {statistics.stdev(found):.4f}")


if __name__ == "__main__":
    main()
