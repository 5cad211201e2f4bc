#!/usr/bin/env python3
"""`seqfuse certify --method crown-baf` against CROWN-BaF in plain PyTorch (plain_crown_baf.py): seconds a sentence.

usage: compare_with_torch.py [--layers 1,2,3,4,5,6] [--hidden 128,256] [--lengths 16,32,64,128] [--output results.json]
       compare_with_torch.py --device cpu --layers 1 --hidden 32 --lengths 8

Models have random weights, ReLU, norms without division, 4 heads and an inner width of 4 hidden (--heads, --inner);
one word in the middle of the sentence moves within an L2 ball (--words: how many). Both compute on the same device, in
float64 and in float32 without TF32 (--dtypes). Two times of each: the margin at one radius, which is half the certified
one, and the search for the radius to within a thousandth. seqfuse's are those that it prints with --json: from ids to
bounds on the host, without loading, median over sentences of one length; the first three of a call, which record CUDA
graphs, do not count. PyTorch's are of two peers: `torch`, operator by operator, searching by bisection as published
implementations do; on a GPU also `torch_graph`, the same operators replayed as a CUDA graph, searching by secants as
seqfuse does. Radii in float64 must be within two thousandths of PyTorch's (each search ends within one), or the exit
code is 1. PyTorch's bounds in float32 are not sound; seqfuse's are, and smaller.
"""

import argparse
import functools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from plain_crown_baf import GraphedCrownBaF, PlainCrownBaF, radius_by_bisection, radius_by_secants

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/encoder"))
from plain_bert import write_safetensors  # noqa: E402

VOCABULARY, CLASSES = 100, 2


def make_tensors(hidden: int, inner: int, layers: int, positions: int) -> dict[str, torch.Tensor]:
    """float32, without "bert."; of a size that keeps bounds finite over six layers."""
    torch.manual_seed(1)
    tensors = {}

    def linear(name: str, outputs: int, inputs: int, size: float = 0.5) -> None:
        tensors[f"{name}.weight"] = torch.randn(outputs, inputs) * (size / inputs**0.5)
        tensors[f"{name}.bias"] = torch.randn(outputs) * 0.05

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = 1 + 0.05 * torch.randn(hidden)
        tensors[f"{name}.bias"] = 0.05 * torch.randn(hidden)

    for name, rows in (("word", VOCABULARY), ("position", positions), ("token_type", 2)):
        tensors[f"embeddings.{name}_embeddings.weight"] = torch.randn(rows, hidden) * 0.3
    norm("embeddings.LayerNorm")
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            linear(f"{name}.attention.self.{part}", hidden, hidden)
        linear(f"{name}.attention.output.dense", hidden, hidden)
        norm(f"{name}.attention.output.LayerNorm")
        linear(f"{name}.intermediate.dense", inner, hidden)
        linear(f"{name}.output.dense", hidden, inner)
        norm(f"{name}.output.LayerNorm")
    linear("pooler.dense", hidden, hidden)
    linear("classifier", CLASSES, hidden, 1.0)
    return tensors


def write_model(folder: pathlib.Path, tensors: dict, hidden: int, inner: int, layers: int, heads: int, positions: int):
    named = {name if name.startswith("classifier.") else f"bert.{name}": tensor for name, tensor in tensors.items()}
    write_safetensors(folder / "model.safetensors", named)
    config = {
        "model_type": "bert", "hidden_act": "relu", "layer_norm_type": "no_division", "vocab_size": VOCABULARY,
        "hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers, "intermediate_size": inner,
        "type_vocab_size": 2, "max_position_embeddings": positions,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def run_seqfuse(args, folder: pathlib.Path, ids: list[int], positions: list[int], sentences: int, *more: str) -> list:
    file = folder / "ids.txt"
    file.write_text((",".join(map(str, ids)) + "\n") * sentences)
    command = [
        args.seqfuse, "certify", folder, "--ids-file", file, "--positions", ",".join(map(str, positions)),
        "--norm", "l2", "--method", "crown-baf", "--device", args.device, "--json", *more,
    ]  # fmt: skip
    finished = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise SystemExit(f"seqfuse certify failed: {finished.stderr}")
    return [json.loads(line) for line in finished.stdout.splitlines()]


def seconds_of(function, rounds: int) -> float:
    times = []
    for _ in range(rounds + 2):
        start = time.perf_counter()
        function()  # returns a Python number, so the GPU is done
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def median_seconds(lines: list) -> float:
    return statistics.median(line["seconds"] for line in lines[3:])


@torch.no_grad()
def run_case(args, layers: int, hidden: int, length: int) -> dict:
    inner = args.inner * hidden
    tensors = make_tensors(hidden, inner, layers, length)
    ids = torch.randint(VOCABULARY, (length,)).tolist()
    middle = length // 2
    positions = list(range(middle, middle + args.words))
    device_ids = torch.tensor(ids, device=args.device)
    result = {"layers": layers, "hidden": hidden, "length": length}
    for dtype in args.dtypes.split(","):
        torch_dtype = getattr(torch, dtype)
        plain = PlainCrownBaF({name: t.to(args.device, torch_dtype) for name, t in tensors.items()}, args.heads, layers)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_model(folder, tensors, hidden, inner, layers, args.heads, length)
            given = (args, folder, ids, positions, args.rounds + 3, "--dtype", dtype)
            searched = run_seqfuse(*given, "--search")
            radius, label = searched[0]["radius"], searched[0]["label"]
            bounds = run_seqfuse(*given, "--eps", str(radius / 2))
        one = functools.partial(plain.margin, device_ids, positions, radius / 2, label)
        margin = functools.partial(plain.margin, device_ids, positions, label=label)
        search = functools.partial(radius_by_bisection, margin, 1e-3)
        times = {
            "one_radius": {"seqfuse": median_seconds(bounds), "torch": seconds_of(one, args.rounds)},
            "search": {"seqfuse": median_seconds(searched), "torch": seconds_of(search, min(args.rounds, 3))},
        }
        if args.device == "cuda":
            graphed = GraphedCrownBaF(plain, device_ids, positions, label)
            times["one_radius"]["torch_graph"] = seconds_of(functools.partial(graphed.margin, radius / 2), args.rounds)
            by_secants = functools.partial(radius_by_secants, graphed.margin, 1e-3)
            times["search"]["torch_graph"] = seconds_of(by_secants, min(args.rounds, 3))
        for task in times.values():
            for peer in ("torch", "torch_graph"):
                if peer in task:
                    task[f"speedup_over_{peer}"] = task[peer] / task["seqfuse"]
        result[dtype] = {
            "radius": radius, "radius_torch": search(), "radii_tried": searched[0]["tried"],
            "margin": bounds[0]["margins"][0]["lower"], "margin_torch": one(), **times,
        }  # fmt: skip
    exact = result["float64"]
    if "float32" in result:
        result["float32_radius_share"] = result["float32"]["radius"] / exact["radius"]
    result["radius_is_near_torch"] = abs(exact["radius"] - exact["radius_torch"]) <= 2e-3 * exact["radius_torch"]
    return result


def line_of(result: dict) -> str:
    parts = [f"{result['layers']} layers, hidden {result['hidden']}, length {result['length']}:"]
    for dtype in (name for name in ("float64", "float32") if name in result):
        found = result[dtype]
        parts.append(f"{dtype} radius {found['radius']:.5g} (torch {found['radius_torch']:.5g}),")
        for task in ("one_radius", "search"):
            times = found[task]
            parts.append(f"{task} {1000 * times['seqfuse']:.2f} ms,")
            for peer in (name for name in ("torch", "torch_graph") if name in times):
                parts.append(f"{peer} {1000 * times[peer]:.2f} ms ({times['speedup_over_' + peer]:.2f}x);")
    return " ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="1,2,3,4,5,6")
    parser.add_argument("--hidden", default="128,256")
    parser.add_argument("--lengths", default="16,32,64,128")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--inner", type=int, default=4, help="times hidden")
    parser.add_argument("--words", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--dtypes", default="float64,float32", help="float64 must be one of them")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seqfuse", type=pathlib.Path, default=ROOT / "build/bin/seqfuse")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    machine = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{machine}, torch {torch.__version__}")
    results = []
    for layers in map(int, args.layers.split(",")):
        for hidden in map(int, args.hidden.split(",")):
            for length in map(int, args.lengths.split(",")):
                result = run_case(args, layers, hidden, length)
                results.append(result)
                print(line_of(result), flush=True)
                if args.output:
                    report = {"machine": machine, "torch": torch.__version__, "results": results}
                    args.output.write_text(json.dumps(report, indent=1))
    wrong = [result for result in results if not result["radius_is_near_torch"]]
    for result in wrong:
        print(f"radii differ: {line_of(result)}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
