"""The example, shortened."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_recommender_learns():
    command = [sys.executable, "examples/train_recommender.py", "--epochs", "3", "--max-users", "60", "--max-len", "50"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", finished.stdout)]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    for name in ("HSTU", "popularity"):
        assert re.search(rf"{name} +HR@10 0\.[0-9]+ +NDCG@10 0\.[0-9]+", finished.stdout)
