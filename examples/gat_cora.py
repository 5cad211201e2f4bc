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
    """Attention of every head among the neighbours of each node: [N, width] to [N, heads, head_dim]."""

    def __init__(self, width: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.weight = nn.Parameter(torch.empty(width, heads, head_dim))
        self.left = nn.Parameter(torch.empty(1, heads, head_dim))
        self.right = nn.Parameter(torch.empty(1, heads, head_dim))
        self.bias = nn.Parameter(torch.zeros(heads, head_dim))
        bound = (6 / (width + heads * head_dim)) ** 0.5
        nn.init.uniform_(self.weight, -bound, bound)
        for vector in (self.left, self.right):
            nn.init.uniform_(vector, -((6 / (head_dim + 1)) ** 0.5), (6 / (head_dim + 1)) ** 0.5)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        x = functional.dropout(x, self.dropout, self.training)
        h = (x @ self.weight.flatten(1)).view(-1, *self.bias.shape)
        a_l, a_r = (h * self.left).sum(-1), (h * self.right).sum(-1)
        return self.bias + seqfuse.gat_attention(graph, a_l, a_r, h, dropout=self.dropout if self.training else 0.0)


class GAT(nn.Module):
    """Node features to the scores of classes [N, classes]."""

    def __init__(self, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.hidden = GATLayer(width, 8, 8, dropout)
        self.classes = GATLayer(64, 1, classes, dropout)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return self.classes(graph, functional.elu(self.hidden(graph, x)).flatten(1)).flatten(1)


def load(file: pathlib.Path) -> tuple[Graph, Tensor, Tensor]:
    """The graph in both directions with self-loops, features whose rows sum to 1, and labels."""
    data = numpy.load(file, allow_pickle=True)
    tensor = {name: torch.from_numpy(data[name]) for name in data.files if name.startswith(("adj", "attr", "labels"))}
    nodes = len(tensor["labels"])
    row = torch.repeat_interleave(torch.arange(nodes), tensor["adj_indptr"].diff())
    column = tensor["adj_indices"].long()
    every = torch.arange(nodes)
    rows, columns = torch.cat([row, column, every]), torch.cat([column, row, every])
    once = torch.unique(rows * nodes + columns)  # an edge once, whatever the file says
    features = torch.sparse_csr_tensor(
        tensor["attr_indptr"].long(), tensor["attr_indices"].long(), tensor["attr_data"], tuple(data["attr_shape"])
    ).to_dense()
    features = features / features.sum(1, keepdim=True).clamp(min=1)
    return Graph.from_edges(once // nodes, once % nodes, nodes), features, tensor["labels"].long()


def draw_sets(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes for training, 20 of each class, early stopping and the test."""
    order = torch.randperm(len(labels))
    train = torch.cat([order[labels[order] == c][:20] for c in labels.unique()])
    rest = order[~torch.isin(order, train)]
    return train, rest[:500], rest[500:1500]


def run(graph: Graph, x: Tensor, labels: Tensor, options: argparse.Namespace) -> tuple[float, int]:
    """Accuracy on the test set at the epoch of the least validation loss, and that epoch."""
    train, validation, test = draw_sets(labels.cpu())
    model = GAT(x.shape[1], int(labels.max()) + 1, options.dropout).to(x.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    best, accuracy, at = float("inf"), 0.0, 0
    for epoch in range(1, options.epochs + 1):
        model.train()
        optimizer.zero_grad()
        functional.cross_entropy(model(graph, x)[train], labels[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            scores = model(graph, x)
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
    graph, x, labels = load(options.data)
    print(f"{graph}, {x.shape[1]} features, {int(labels.max()) + 1} classes")
    graph, x, labels = graph.to(options.device), x.to(options.device), labels.to(options.device)
    found = []
    for seed in range(1, options.seeds + 1):
        torch.manual_seed(seed)
        start = time.monotonic()
        accuracy, epoch = run(graph, x, labels, options)
        found.append(accuracy)
        print(f"seed {seed}  test accuracy {accuracy:.4f}  epoch {epoch}  {time.monotonic() - start:.1f} s", flush=True)
    if len(found) > 1:
        print(f"mean {statistics.mean(found):.4f}  standard deviation {statistics.stdev(found):.4f}")


if __name__ == "__main__":
    main()
