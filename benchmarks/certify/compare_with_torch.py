#!/usr/bin/env python3
"""`seqfuse certify --method crown-baf` against CROWN-BaF in plain PyTorch (plain_crown_baf.py): seconds a sentence.

usage: compare_with_torch.py [--layers 1,2,3,4,5,6] [--hidden 128,256] [--lengths 16,32,64,128] [--output results.json]
       compare_with_torch.py --device cpu --layers 1 --hidden 32 --lengths 8

Models have random weights, ReLU, norms without division, 4 heads and an inner width of 4 hidden (--heads, --inner);
one word in the middle of the sentence moves within an L2 ball (--words: how many). Both compute in float32 on the same
device, without TF32. Two times of each: the margin at one radius, which is half the certified one, and the search for
the radius to within a thousandth. seqfuse's are those that it prints with --json: from ids to bounds on the host,
without loading; the first sentences of a call do not count. Radii are checked: in float32 within a thousandth of that
in float64, and within a hundredth of PyTorch's; the exit code is 1 if they are not.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from plain_crown_baf import PlainCrownBaF

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
    header, chunks, at = {}, [], 0
    for name, tensor in tensors.items():
        raw = tensor.contiguous().numpy().tobytes()
        full = name if name.startswith("classifier.") else f"bert.{name}"
        header[full] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        chunks.append(raw)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *chunks]))
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


def seconds_of(function, device: str, rounds: int) -> float:
    times = []
    for _ in range(rounds + 2):
        start = time.perf_counter()
        function()  # returns a Python number, so the GPU is done
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def median_seconds(lines: list) -> float:
    return statistics.median(line["seconds"] for line in lines[2:])


@torch.no_grad()
def run_case(args, layers: int, hidden: int, length: int) -> dict:
    inner = args.inner * hidden
    tensors = make_tensors(hidden, inner, layers, length)
    ids = torch.randint(VOCABULARY, (length,)).tolist()
    middle = length // 2
    positions = list(range(middle, middle + args.words))
    plain = PlainCrownBaF({name: t.to(args.device) for name, t in tensors.items()}, args.heads, layers)
    device_ids = torch.tensor(ids, device=args.device)
    rounds, search = args.rounds, ("--search", "--dtype")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder, tensors, hidden, inner, layers, args.heads, length)
        searched = run_seqfuse(args, folder, ids, positions, rounds + 2, *search, "float32")
        wide = run_seqfuse(args, folder, ids, positions, rounds + 2, *search, "float64")
        precise = (
            run_seqfuse(args, folder, ids, positions, 1, "--tolerance", "1e-5", *search, dtype)[0]["radius"]
            for dtype in ("float32", "float64")
        )
        radius, exact = precise
        label = searched[0]["label"]
        bounds = run_seqfuse(args, folder, ids, positions, rounds + 2, "--eps", str(radius / 2), "--dtype", "float32")
    plain_radius = plain.radius(device_ids, positions, label, 1e-3)
    result = {
        "layers": layers, "hidden": hidden, "length": length, "radius": radius, "radius_float64": exact,
        "radius_torch": plain_radius, "margin": bounds[0]["margins"][0]["lower"],
        "margin_torch": plain.margin(device_ids, positions, radius / 2, label),
        "one_radius": {
            "seqfuse": median_seconds(bounds),
            "torch": seconds_of(lambda: plain.margin(device_ids, positions, radius / 2, label), args.device, rounds),
        },
        "search": {
            "seqfuse": median_seconds(searched), "seqfuse float64": median_seconds(wide),
            "torch": seconds_of(lambda: plain.radius(device_ids, positions, label, 1e-3), args.device, min(rounds, 3)),
        },
    }  # fmt: skip
    for task in ("one_radius", "search"):
        result[task]["speedup"] = result[task]["torch"] / result[task]["seqfuse"]
    result["radius_is_near_float64"] = abs(radius - exact) <= 1e-3 * exact
    result["radius_is_near_torch"] = abs(radius - plain_radius) <= 1e-2 * plain_radius
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="1,2,3,4,5,6")
    parser.add_argument("--hidden", default="128,256")
    parser.add_argument("--lengths", default="16,32,64,128")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--inner", type=int, default=4, help="times hidden")
    parser.add_argument("--words", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
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
                one, search = (
                    {k: v * (1 if k == "speedup" else 1000) for k, v in result[task].items()}
                    for task in ("one_radius", "search")
                )
                print(
                    f"{layers} layers, hidden {hidden}, length {length}: radius {result['radius']:.5g} (float64 "
                    f"{result['radius_float64']:.5g}, torch {result['radius_torch']:.5g}); one radius "
                    f"{one['seqfuse']:.2f} ms against {one['torch']:.2f} ms ({one['speedup']:.1f}x); search "
                    f"{search['seqfuse']:.1f} ms against {search['torch']:.1f} ms ({search['speedup']:.1f}x)",
                    flush=True,
                )
                if args.output:
                    report = {"machine": machine, "torch": torch.__version__, "results": results}
                    args.output.write_text(json.dumps(report, indent=1))
    wrong = [r for r in results if not (r["radius_is_near_float64"] and r["radius_is_near_torch"])]
    for r in wrong:
        print(f"radii differ: {r}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
