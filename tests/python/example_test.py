"""The examples, shortened."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy
import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).parents[2]


def test_recommender_learns():
    command = [sys.executable, "examples/train_recommender.py", "--epochs", "3", "--max-users", "60", "--max-len", "50"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", finished.stdout)]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    for name in ("HSTU", "popularity"):
        assert re.search(rf"{name} +HR@10 0\.[0-9]+ +NDCG@10 0\.[0-9]+", finished.stdout)


def test_graph_attention_network_learns(tmp_path):
    """On a small graph with three groups, in the format of the example's file."""
    torch.manual_seed(1)
    labels = torch.arange(1600) % 3
    rows, columns = torch.randint(1600, (2, 12000))
    kept = (labels[rows] == labels[columns]) | (torch.rand(12000) < 0.1)
    adjacency = torch.zeros(1600, 1600).index_put((rows[kept], columns[kept]), torch.tensor(1.0)).to_sparse_csr()
    features = (torch.rand(1600, 30) + F.one_hot(labels, 30) > 0.97).float().to_sparse_csr()
    arrays = {"labels": labels.to(torch.int8)}
    for name, matrix in (("adj", adjacency), ("attr", features)):
        arrays[f"{name}_data"] = matrix.values()
        arrays[f"{name}_indices"] = matrix.col_indices().int()
        arrays[f"{name}_indptr"] = matrix.crow_indices().int()
        arrays[f"{name}_shape"] = torch.tensor(matrix.shape)
    file = tmp_path / "graph.npz"
    numpy.savez(file, **{name: values.numpy() for name, values in arrays.items()})
    command = [sys.executable, "examples/gat_cora.py", file, "--epochs", "15"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert finished.stdout.startswith("Graph(rows=1600, columns=1600, edges=")
    assert float(re.search(r"test accuracy (0\.[0-9]+|1\.0+)", finished.stdout)[1]) > 0.8


def test_models_of_certified_training_can_be_certified(tmp_path):
    command = [sys.executable, "examples/certified_training.py", tmp_path, "--steps", "30", "--length", "3"]
    finished = subprocess.run([*command, "--test", "2"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(re.findall(r"accuracy [01]\.[0-9]+, certified by intervals at 0.05: [01]\.", finished.stdout)) == 2
    binary = os.environ.get("SEQFUSE_BINARY", ROOT / "build/bin/seqfuse")
    for name in ("normal", "certified"):
        certify = [binary, "certify", tmp_path / name, "--ids-file", tmp_path / "test.txt", "--eps", "0", "--json"]
        finished = subprocess.run(certify, capture_output=True, text=True, check=True)
        lines = [json.loads(line) for line in finished.stdout.splitlines()]
        assert [line["tokens"] for line in lines] == [4, 4]
        assert all(line["certified"] for line in lines)
