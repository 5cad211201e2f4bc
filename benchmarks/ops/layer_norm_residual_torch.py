#!/usr/bin/env python3
"""layer_norm(x) + residual in float16 on a GPU: seqfuse, torch.compile and eager PyTorch in one process.

usage: layer_norm_residual_torch.py [-o FILE]     with PYTHONPATH=python SEQFUSE_LIBRARY=build/lib/libseqfuse_ops.so

Microseconds a call and TB/s (x and residual read, y written once), from replays of a CUDA graph of calls over several
inputs, so that large ones are not in the cache. Contestants take turns; each figure is the median of 21 turns. A copy
of as many bytes is the ceiling.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

import seqfuse

SHAPES = [(1, 1, 2560), (1, 2048, 2560), (16, 4096, 2560), (16, 4096, 5120)]
EPS = 1e-5


def plain(x, residual, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, EPS) + residual


def fused(x, residual, weight, bias):
    return seqfuse.fused_layernorm_residual(x, residual, weight, bias, EPS)


class Recorded:
    """A graph of one call for each of some inputs, several times over."""

    def __init__(self, work, calls: int) -> None:
        self.calls, self.times = calls, []
        self.stream, self.graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                work()
            self.stream.synchronize()
            with torch.cuda.graph(self.graph, stream=self.stream):
                work()

    def take_turn(self) -> None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self.stream):
            begin.record()
            self.graph.replay()
            end.record()
        end.synchronize()
        self.times.append(begin.elapsed_time(end) * 1e3 / self.calls)

    def microseconds(self) -> float:
        return statistics.median(self.times)


def measure(shape: tuple[int, ...], compiled) -> dict:
    elements = shape[0] * shape[1] * shape[2]
    inputs = max(1, min(16, 400_000_000 // (elements * 6)))
    repeats = max(1, 32 // inputs)

    def tensors():
        return [torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(inputs)]

    xs, residuals = tensors(), tensors()
    weight, bias = (torch.randn(shape[2], device="cuda", dtype=torch.float16) for _ in range(2))
    expected = plain(xs[0].double(), residuals[0].double(), weight.double(), bias.double())
    error = float((fused(xs[0], residuals[0], weight, bias).double() - expected).abs().max())
    del expected

    def over_inputs(call):
        def work():  # keeps no results
            for _ in range(repeats):
                for x, residual in zip(xs, residuals):
                    call(x, residual, weight, bias)

        return Recorded(work, repeats * inputs)

    half = elements * 3 // 2  # of a copy, which reads and writes
    source, target = (torch.empty(half, device="cuda", dtype=torch.float16) for _ in range(2))
    contestants = {"seqfuse": over_inputs(fused), "torch.compile": over_inputs(compiled), "eager": over_inputs(plain)}
    contestants["copy"] = Recorded(lambda: target.copy_(source), 1)
    time.sleep(0.4)
    for _ in range(21):
        for contestant in contestants.values():
            contestant.take_turn()
    bytes_moved = 3 * 2 * elements
    times = {name: contestant.microseconds() for name, contestant in contestants.items()}
    return {
        "shape": shape,
        "microseconds": times,
        "TB/s": {name: bytes_moved / us * 1e-6 for name, us in times.items()},
        "largest error": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", help="write JSON to this file")
    options = parser.parse_args()
    compiled = torch.compile(plain, dynamic=False)
    results = []
    with torch.inference_mode():
        for shape in SHAPES:
            result = measure(shape, compiled)
            results.append(result)
            line = (f"{n} {us:.2f} us, {result['TB/s'][n]:.2f} TB/s" for n, us in result["microseconds"].items())
            print(f"{shape}: {'; '.join(line)}; largest error {result['largest error']:.2g}", flush=True)
    if options.output:
        report = {"card": torch.cuda.get_device_name(), "torch": torch.__version__, "results": results}
        with open(options.output, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
