#!/usr/bin/env python3
"""PyTorch's FlashAttention-2 (kernels for SM 8.0) on the shapes of hstu_attention_kernel_bench, as a peer.

usage: benchmarks/kernels/flash_attention_torch.py [--loaded] [--cell HEAD_DIM,LENGTH]

bfloat16, batch 32, 4 heads, causal, full length. Medians of CUDA-graph replays, after a second of rest, or with
--loaded after two seconds of the same work; backward is the time of both passes minus forward. TFLOP/s count half of
causal attention, and backward as 2.5 times forward. FlashAttention computes a softmax, which HSTU attention does not.
"""

import argparse
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

BATCH, HEADS = 32, 4


def milliseconds(work, loaded: bool) -> float:
    """The median over replays of a graph of many calls, so that the graph's launch overhead does not matter."""
    stream = torch.cuda.Stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        for _ in range(3):
            begin.record()
            work()
            end.record()
        torch.cuda.synchronize()
        calls = min(max(int(6 / begin.elapsed_time(end)), 3), 100)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                work()

        def replay() -> float:
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / calls

        if loaded:
            start = time.monotonic()
            while time.monotonic() - start < 2:
                replay()
        else:
            time.sleep(1)
        times = [replay() for _ in range(11)]
    return sorted(times)[len(times) // 2]


def measure(head_dim: int, length: int, loaded: bool) -> None:
    """Prints one cell of the table."""
    shape = (BATCH, HEADS, length, head_dim)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    dout = torch.randn_like(q)
    flops = 2 * BATCH * HEADS * length**2 * head_dim
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):

        def attention():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        with torch.no_grad():
            forward = milliseconds(attention, loaded)
        backward = milliseconds(lambda: torch.autograd.grad(attention(), (q, k, v), dout), loaded) - forward
    print(
        f"{head_dim:4} {length:6} {forward:12.4f} {flops / forward * 1e-9:8.1f}"
        f" {backward:13.4f} {2.5 * flops / backward * 1e-9:8.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loaded", action="store_true", help="time a card under load, not at rest")
    parser.add_argument("--cell", help="HEAD_DIM,LENGTH alone")
    arguments = parser.parse_args()
    cells = [(head_dim, length) for head_dim in (64, 128, 256) for length in (512, 1024, 2048, 4096)]
    if arguments.cell:
        cells = [tuple(int(n) for n in arguments.cell.split(","))]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print("   d      N   forward ms  TFLOP/s   backward ms  TFLOP/s")
    for head_dim, length in cells:
        measure(head_dim, length, arguments.loaded)


main()
