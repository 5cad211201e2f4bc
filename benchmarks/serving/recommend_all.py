#!/usr/bin/env python3
"""Recommends to all users of a dataset: `seqfuse recommend --users all` beside plain, padded PyTorch.

    recommend_all.py RUN [--device cpu|cuda] [-o RESULT.json]
    recommend_all.py --synthesize 1000000 --device cuda -o RESULT.json

RUN is a retrieval run of configs/ml_1m_hstu.gin (architecture hstu_research). --synthesize makes one first: users with
as many events as those of MovieLens-1M, 3,706 items, weights after a few steps.

PyTorch runs the program of benchmarks/training/hstu_torch.py with the run's weights: users sorted by length, padded to
the longest of a batch, their seen items masked by one assignment a batch, torch.topk, rows written as CSV. Both read
the same dataset and write the same columns; the 10 items of each user that both recommend to are compared. Seconds
exclude the start of the program and the loading of model and data, in both.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy
import pyarrow
import pyarrow.ipc
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "training"))
from compare_with_torch import load_safetensors, our_name, processor  # noqa: E402
from hstu_torch import Model  # noqa: E402

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


def load_users(dataset: pathlib.Path, count: int) -> list[tuple[numpy.ndarray, numpy.ndarray]]:
    """Items and timestamps of the first users, oldest first."""
    users = []
    for shard in sorted((dataset / "sequences").glob("*.arrow")):
        for batch in pyarrow.ipc.open_file(pyarrow.memory_map(str(shard))).read_all().to_batches():
            ends = batch["items"].offsets.to_numpy()[1 : 1 + count - len(users)]
            begins = batch["items"].offsets.to_numpy()[: len(ends)]
            items, stamps = (batch[name].values.to_numpy() for name in ("items", "timestamps"))
            users += [(items[begin:end], stamps[begin:end]) for begin, end in zip(begins, ends, strict=True)]
            if len(users) == count:
                return users
    return users


def dataset_of(run: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(json.loads((run / "run.json").read_text())["dataset_path"])


def recommend_with_torch(run, users, output, batch_size, device) -> float:
    model, max_history = load_model(run)
    model.to(device)
    gap = json.loads((run / "vocabulary/vocabulary.json").read_text())["typical_gap"]
    histories = load_users(dataset_of(run), users)
    user_ids, item_ids = (ids_of(dataset_of(run) / f"vocab/{name}.arrow") for name in ("user", "item"))
    start = time.perf_counter()
    order = sorted(range(len(histories)), key=lambda row: min(len(histories[row][0]), max_history))
    found = {}
    with torch.inference_mode():
        table = F.normalize(model.item, dim=-1, eps=1e-6)
        for begin in range(0, len(order), batch_size):
            rows = order[begin : begin + batch_size]
            width = min(max_history, max(len(histories[row][0]) for row in rows)) + 1
            ids = numpy.zeros((len(rows), width), dtype=numpy.int64)
            times = numpy.zeros_like(ids)
            for place, row in enumerate(rows):
                items, stamps = (values[-max_history:] for values in histories[row])
                ids[place, : len(items)] = items
                times[place, : len(items)] = stamps
                times[place, len(items) :] = stamps[-1] + gap
            seen = numpy.concatenate([histories[row][0] for row in rows])
            places = numpy.repeat(numpy.arange(len(rows)), [len(histories[row][0]) for row in rows])
            ids, times, seen, places = (torch.from_numpy(array).to(device) for array in (ids, times, seen, places))
            length = (ids > 0).sum(1)
            scores = model(ids, times)[torch.arange(len(rows), device=device), length - 1] @ table.T
            scores[:, 0] = -torch.inf
            scores[places, seen] = -torch.inf
            values, items = (tensor.tolist() for tensor in scores.topk(TOP_K))
            found |= zip(rows, zip(items, values))
    with output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "rank", "item", "score"])
        for row in range(len(histories)):
            for rank, (item, score) in enumerate(zip(*found[row]), 1):
                writer.writerow([user_ids[row], rank, item_ids[item - 1], score])
    return len(histories) / (time.perf_counter() - start)


def recommend_with_seqfuse(build, run, output, device, processes) -> tuple[float, str]:
    """Users a second, and what the program says of its stages."""
    command = [build / "bin/seqfuse", "recommend", run, "--users", "all", "--top-k", str(TOP_K), "--output", output]
    if processes > 1:
        torchrun = pathlib.Path(sys.executable).with_name("torchrun")
        command = [torchrun, "--standalone", "--no-python", "--nproc_per_node", str(processes), *command]
    told = subprocess.run([*command, "--device", device], check=True, capture_output=True, text=True).stderr
    rate = re.search(r"([\d.]+)( [kM])? users/s$", told, re.M)
    stages = re.search(r"at the same time: (.*)$", told, re.M)
    return float(rate[1]) * {None: 1, " k": 1e3, " M": 1e6}[rate[2]], stages[1] if stages else ""


def synthesize(build: pathlib.Path, folder: pathlib.Path, users: int, device: str) -> pathlib.Path:
    """A run whose dataset has so many users."""

    def seqfuse(*arguments):
        subprocess.run([build / "bin/seqfuse", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    root = pathlib.Path(__file__).resolve().parent.parent.parent
    log, data, run = folder / "log", folder / "data", folder / "run"
    seqfuse("synthesize", "--like", "ml-1m", "--users", users, "--items", 3706, "--output", log)
    seqfuse("preprocess", "--dataset-name", "ml-1m", "--input", log, "--output", data)
    shutil.rmtree(log)
    config = root / "configs/ml_1m_hstu.gin"
    few = ["--gin", "TrainerArgs.max_train_iters=10", "--device", device]
    seqfuse("train", "retrieval", "--gin-config-file", config, "--data", data, "--output", run, *few)
    return run


def compare(ours: pathlib.Path, theirs: pathlib.Path) -> dict[str, float]:
    """Of all rows: how many have the same item, and how much the score of a rank differs at most."""
    same, worst, rows = 0, 0.0, 0
    with ours.open(newline="") as a, theirs.open(newline="") as b:
        for other, mine in zip(csv.DictReader(b), csv.DictReader(a)):  # which may have more users
            assert (mine["user"], mine["rank"]) == (other["user"], other["rank"])
            rows += 1
            same += mine["item"] == other["item"]
            worst = max(worst, abs(float(mine["score"]) - float(other["score"])))
    return {"rows": rows, "same_item": same / rows, "score_max_abs_difference": worst}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, nargs="?")
    parser.add_argument("--synthesize", type=int, metavar="USERS", help="make a run with so many users")
    parser.add_argument("--work", type=pathlib.Path, help="folder for --synthesize; default: a temporary one")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--torch-users", type=int, default=60400, help="PyTorch gets so many users at most")
    parser.add_argument("--batch-size", type=int, help="of PyTorch; default: 128 on the CPU, 512 on a GPU")
    parser.add_argument("--rounds", type=int, default=2, help="the fastest counts")
    parser.add_argument("--processes", type=int, default=1, help="of seqfuse, by torchrun, each with a GPU")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    options = parser.parse_args()
    if (options.run is None) == (options.synthesize is None):
        parser.error("give either RUN or --synthesize USERS")
    batch_size = options.batch_size or {"cpu": 128, "cuda": 512}[options.device]
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        run = options.run or synthesize(options.build, pathlib.Path(folder), options.synthesize, options.device)
        users = json.loads((dataset_of(run) / "manifest.json").read_text())["num_users"]
        ours, theirs = pathlib.Path(folder, "ours.csv"), pathlib.Path(folder, "theirs.csv")
        rates = {"seqfuse": [], "torch": []}
        stages = []
        for _ in range(options.rounds):
            rate, stage = recommend_with_seqfuse(options.build, run, ours, options.device, options.processes)
            rates["seqfuse"].append(rate)
            stages.append(stage)
            rates["torch"].append(
                recommend_with_torch(run, min(users, options.torch_users), theirs, batch_size, options.device)
            )
        compared = compare(ours, theirs)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    result = {
        "command": " ".join(["benchmarks/serving/recommend_all.py", *sys.argv[1:]]),
        "commit": commit.stdout.strip(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {len(os.sched_getaffinity(0))} cores",
        "gpu": torch.cuda.get_device_name() if options.device == "cuda" else None,
        "torch": torch.__version__,
        "users": users,
        "torch_users": min(users, options.torch_users),
        "torch_batch_size": batch_size,
        "top_k": TOP_K,
        "users_per_s": rates,
        "stages_of_seqfuse": stages,
        "speed_up": max(rates["seqfuse"]) / max(rates["torch"]),
        **compared,
    }
    text = json.dumps(result, indent=2)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
