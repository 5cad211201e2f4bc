#!/usr/bin/env python3
"""Compares loss and speed of seqfuse and plain PyTorch on the same data, settings and machine.

    compare_with_torch.py --build build --data DATASET [--config configs/ml_1m_hstu.gin] [-o RESULT.json]

1. Loss and gradients of one batch with the same weights and negatives, both in float64.
2. Training throughput in real (unpadded) tokens/s: seqfuse, PyTorch eager, PyTorch compiled, in turn.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

import torch
from hstu_torch import Model

HERE = pathlib.Path(__file__).parent
DTYPES = {"F64": torch.float64, "F32": torch.float32, "I64": torch.int64, "I32": torch.int32}


def load_safetensors(path: pathlib.Path) -> dict[str, torch.Tensor]:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            flat = torch.frombuffer(bytearray(content[begin:end]), dtype=DTYPES[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def our_name(name: str) -> str:
    """The seqfuse parameter that corresponds to this one of hstu_torch.Model."""
    name = re.sub(r"^item$", "tables.item", name)
    name = re.sub(r"^position$", "encoder.position", name)
    name = re.sub(r"^blocks\.", "encoder.layers.", name)
    return name.replace("uvqk", "uvqk_weight").replace("out.", "output_")


def parity(build: pathlib.Path, data: str, config: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "parity.safetensors")
        subprocess.run([build / "bin/loss_parity", data, config, output], check=True, stdout=sys.stderr)
        ours = load_safetensors(output)
    rows, width = ours["weight.tables.item"].shape
    longest = len(ours["weight.encoder.position"])
    model = Model(rows - 1, width, max_len=longest - 11, dropout=0.0).double()
    for name, parameter in model.named_parameters():
        weight = ours["weight." + our_name(name)]
        parameter.data.copy_(weight.T if name.endswith("out.weight") else weight)
    offsets = ours["offsets"].tolist()
    most = max(b - a for a, b in zip(offsets, offsets[1:]))
    ids = torch.zeros(len(offsets) - 1, most, dtype=torch.long)
    times = torch.zeros_like(ids)
    negatives = torch.zeros(len(ids), most - 1, ours["negatives"].shape[1], dtype=torch.long)
    used = 0
    for row, (begin, end) in enumerate(zip(offsets, offsets[1:])):
        count = end - begin
        ids[row, :count] = ours["items"][begin:end]
        times[row] = ours["timestamps"][end - 1]
        times[row, :count] = ours["timestamps"][begin:end]
        negatives[row, : count - 1] = ours["negatives"][used : used + count - 1]
        used += count - 1
    losses, real = model.losses(ids, times, negatives)
    losses[real].mean().backward()
    worst_gradient = 0.0
    for name, parameter in model.named_parameters():
        gradient = parameter.grad.T if name.endswith("out.weight") else parameter.grad
        mine = ours["gradient." + our_name(name)]
        worst_gradient = max(worst_gradient, ((gradient - mine).norm() / gradient.norm()).item())
    return {
        "loss_max_abs_difference": (losses[real] - ours["losses"]).abs().max().item(),
        "gradient_max_relative_difference": worst_gradient,
    }


def seqfuse_speed(build: pathlib.Path, data: str, config: str, steps: int, overrides: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder, "run")
        overrides = [*overrides, f"TrainerArgs.max_train_iters={steps}", "TrainerArgs.log_interval=10"]
        overrides += [
            "TrainerArgs.num_epochs=None",
            "TrainerArgs.eval_interval_epochs=None",
            "TrainerArgs.eval_interval=0",
        ]
        gin = [flag for override in overrides for flag in ("--gin", override)]
        command = [build / "bin/seqfuse", "train", "retrieval", "--gin-config-file", config, "--data", data]
        subprocess.run(
            [*command, "--output", run, *gin], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    # The first interval warms up.
    rates = sorted(line["tokens_per_second"] for line in lines[1:] if "tokens_per_second" in line)
    return {"steps": steps, "tokens_per_s": rates[len(rates) // 2]}


def torch_speed(data: str, steps: int, warm_up: int, *flags: str) -> dict[str, float]:
    command = [sys.executable, HERE / "hstu_torch.py", data, "--json", "--device", "cpu"]
    command += ["--max-steps", str(warm_up + steps), "--warm-up", str(warm_up), *flags]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--data", required=True, help="dataset directory")
    parser.add_argument("--config", default="configs/ml_1m_hstu.gin")
    parser.add_argument("--gin", action="append", default=[], help="override for seqfuse, as its own --gin")
    parser.add_argument("--steps", type=int, default=60, help="steps of seqfuse in each round")
    parser.add_argument("--torch-steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    options = parser.parse_args()

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    result = {
        "command": " ".join(["benchmarks/training/compare_with_torch.py", "--config", options.config]),
        "commit": commit.stdout.strip(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {len(os.sched_getaffinity(0))} cores",
        "torch": torch.__version__,
        "parity": parity(options.build, options.data, options.config),
        "seqfuse": [],
        "torch_eager": [],
        "torch_compiled": [],
    }
    for _ in range(options.rounds):
        result["seqfuse"].append(seqfuse_speed(options.build, options.data, options.config, options.steps, options.gin))
        result["torch_eager"].append(torch_speed(options.data, options.torch_steps, 1))
        result["torch_compiled"].append(torch_speed(options.data, options.torch_steps, 2, "--compile"))
    best = {name: max(r["tokens_per_s"] for r in result[name]) for name in ("seqfuse", "torch_eager", "torch_compiled")}
    result["speed_up"] = {name: best["seqfuse"] / best[name] for name in ("torch_eager", "torch_compiled")}
    text = json.dumps(result, indent=2)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
