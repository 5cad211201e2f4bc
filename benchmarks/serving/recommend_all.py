#!/usr/bin/env python3
"""Recommends to all users of a dataset: `seqfuse recommend --users all` beside plain, padded PyTorch.

    recommend_all.py RUN [--build build] [--users 6040] [--rounds 2] [--device cpu] [-o RESULT.json]

RUN is a retrieval run of configs/ml_1m_hstu.gin (architecture hstu_research). PyTorch runs the program of
benchmarks/training/hstu_torch.py with the run's weights: users sorted by length, padded to the longest of a batch,
their seen items masked, torch.topk, rows written as CSV. Both read the same dataset and write the same columns; the
10 items of every user are compared. Seconds exclude the start of the program and the loading of the model, in both.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import pyarrow.ipc
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "training"))
from compare_with_torch import load_safetensors, our_name, processor  # noqa: E402
from hstu_torch import Model, load_users  # noqa: E402

TOP_K = 10


def load_model(run: pathlib.Path) -> tuple[Model, int]:
    """The model of the newest checkpoint, and how many events it reads."""
    checkpoint = max((run / "checkpoints").glob("step_*"), key=lambda path: int(path.name[5:]))
    weights = load_safetensors(checkpoint / "dense.safetensors")
    for file in (checkpoint / "tables").glob("*.safetensors"):
        weights |= load_safetensors(file)
    table = next(weights[name] for name in ("item", "tables.item") if name in weights)
    max_history = int(re.search(r"max_history_seqlen = (\d+)", (run / "operative_config.gin").read_text())[1])
    longest = len(weights["encoder.position"])
    model = Model(len(table) - 1, table.shape[1], max_len=longest - 11, dropout=0.0)
    for name, parameter in model.named_parameters():
        weight = table if name == "item" else weights[our_name(name)]
        parameter.data.copy_(weight.T if name.endswith("out.weight") else weight)
    return model.eval(), max_history


def ids_of(file: pathlib.Path) -> list[str]:
    return pyarrow.ipc.open_file(file).read_all()["id"].to_pylist()


def recommend_with_torch(run, users, output, batch_size, device) -> float:
    model, max_history = load_model(run)
    model.to(device)
    dataset = pathlib.Path(json.loads((run / "run.json").read_text())["dataset_path"])
    gap = json.loads((run / "vocabulary/vocabulary.json").read_text())["typical_gap"]
    histories = load_users(str(dataset))[:users]
    user_ids, item_ids = ids_of(dataset / "vocab/user.arrow"), ids_of(dataset / "vocab/item.arrow")
    start = time.perf_counter()
    order = sorted(range(len(histories)), key=lambda row: min(len(histories[row][0]), max_history))
    found = {}
    with torch.inference_mode():
        table = F.normalize(model.item, dim=-1, eps=1e-6)
        for begin in range(0, len(order), batch_size):
            rows = order[begin : begin + batch_size]
            width = min(max_history, max(len(histories[row][0]) for row in rows)) + 1
            ids = torch.zeros(len(rows), width, dtype=torch.long)
            times = torch.zeros_like(ids)
            for place, row in enumerate(rows):
                items, stamps = (values[-max_history:] for values in histories[row])
                ids[place, : len(items)] = torch.tensor(items)
                times[place, : len(items)] = torch.tensor(stamps)
                times[place, len(items) :] = stamps[-1] + gap
            ids, times = ids.to(device), times.to(device)
            length = (ids > 0).sum(1)
            scores = model(ids, times)[torch.arange(len(rows), device=device), length - 1] @ table.T
            scores[:, 0] = -torch.inf
            for place, row in enumerate(rows):
                scores[place, torch.tensor(histories[row][0], device=device)] = -torch.inf
            values, items = (tensor.tolist() for tensor in scores.topk(TOP_K))
            found |= zip(rows, zip(items, values))
    with output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "rank", "item", "score"])
        for row in range(len(histories)):
            for rank, (item, score) in enumerate(zip(*found[row]), 1):
                writer.writerow([user_ids[row], rank, item_ids[item - 1], score])
    return len(histories) / (time.perf_counter() - start)


def recommend_with_seqfuse(build, run, users, output, device) -> float:
    dataset = pathlib.Path(json.loads((run / "run.json").read_text())["dataset_path"])
    file = output.parent / "users.txt"
    file.write_text("\n".join(ids_of(dataset / "vocab/user.arrow")[:users]) + "\n")
    command = [build / "bin/seqfuse", "recommend", run, "--users", file, "--top-k", str(TOP_K), "--output", output]
    told = subprocess.run([*command, "--device", device], check=True, capture_output=True, text=True).stderr
    rate = re.search(r"([\d.]+)( [kM])? users/s$", told.strip())
    return float(rate[1]) * {None: 1, " k": 1e3, " M": 1e6}[rate[2]]


def compare(ours: pathlib.Path, theirs: pathlib.Path) -> dict[str, float]:
    """Of all rows: how many have the same item, and how much the score of a rank differs at most."""
    same, worst, rows = 0, 0.0, 0
    with ours.open(newline="") as a, theirs.open(newline="") as b:
        for mine, other in zip(csv.DictReader(a), csv.DictReader(b), strict=True):
            assert (mine["user"], mine["rank"]) == (other["user"], other["rank"])
            rows += 1
            same += mine["item"] == other["item"]
            worst = max(worst, abs(float(mine["score"]) - float(other["score"])))
    return {"rows": rows, "same_item": same / rows, "score_max_abs_difference": worst}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--users", type=int, default=6040, help="the first so many of the dataset")
    parser.add_argument("--batch-size", type=int, default=128, help="of PyTorch")
    parser.add_argument("--rounds", type=int, default=2, help="the fastest counts")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    result = {
        "command": " ".join(["benchmarks/serving/recommend_all.py", "RUN", *sys.argv[2:]]),
        "commit": commit.stdout.strip(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {len(os.sched_getaffinity(0))} cores",
        "torch": torch.__version__,
        "users": options.users,
        "top_k": TOP_K,
        "users_per_s": {"seqfuse": [], "torch": []},
    }
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = pathlib.Path(folder, "ours.csv"), pathlib.Path(folder, "theirs.csv")
        for _ in range(options.rounds):
            rates = result["users_per_s"]
            rates["seqfuse"].append(
                recommend_with_seqfuse(options.build, options.run, options.users, ours, options.device)
            )
            rates["torch"].append(
                recommend_with_torch(options.run, options.users, theirs, options.batch_size, options.device)
            )
        result |= compare(ours, theirs)
    result["speed_up"] = max(rates["seqfuse"]) / max(rates["torch"])
    text = json.dumps(result, indent=2)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
