#!/usr/bin/env python3
"""What seqfuse.apply_fused_kernels changes in a GPT-NeoX of transformers: time per token, and hidden states.

usage: PYTHONPATH=python SEQFUSE_LIBRARY=build/lib/libseqfuse_ops.so python benchmarks/decode/fused_in_transformers.py

Random weights of the shape of Pythia-2.8B unless --layers, --hidden and --heads say otherwise. Plain and fused layers
are timed in turn, in one process: each round reads a prompt of --cache tokens, then times --steps tokens. Prints JSON:
milliseconds a token (median and quartiles over rounds), and by hidden state how many elements differ, and by how much.
"""

import argparse
import inspect
import json
import statistics
import time

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

import seqfuse


def make_model(options: argparse.Namespace) -> GPTNeoXForCausalLM:
    config = GPTNeoXConfig(
        vocab_size=50304, hidden_size=options.hidden, num_hidden_layers=options.layers,
        num_attention_heads=options.heads, intermediate_size=4 * options.hidden, max_position_embeddings=1 << 20,
        use_parallel_residual=not options.sequential,
    )  # fmt: skip
    torch.manual_seed(1)
    with torch.device(options.device):
        return GPTNeoXForCausalLM(config).to(getattr(torch, options.dtype)).eval()


def milliseconds_a_token(model: GPTNeoXForCausalLM, options: argparse.Namespace) -> float:
    def synchronize() -> None:
        if options.device == "cuda":
            torch.cuda.synchronize()

    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    ids = torch.randint(1000, (options.batch, options.cache), device=options.device)
    out = model(ids, use_cache=True, logits_to_keep=1)
    for step in range(options.warmup + options.steps):
        if step == options.warmup:
            synchronize()
            start = time.perf_counter()
        token = out.logits[:, -1:].argmax(-1)
        out = model(token, use_cache=True, **{name: out[name]})
    synchronize()
    return 1000 * (time.perf_counter() - start) / options.steps


def differences(model: GPTNeoXForCausalLM, options: argparse.Namespace) -> list[dict]:
    ids = torch.randint(1000, (1, min(options.cache, 256)), device=options.device)
    plain = model(ids, output_hidden_states=True).hidden_states
    fused = seqfuse.apply_fused_kernels(model)
    ours = model(ids, output_hidden_states=True).hidden_states
    fused.undo()
    return [
        {"elements that differ": int((a != b).sum()), "of": a.numel(), "largest difference": float((a - b).abs().max())}
        for a, b in zip(plain, ours)
    ]


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 32), ("hidden", 2560), ("heads", 32), ("cache", 1024), ("batch", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("warmup", 10), ("steps", 100), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--sequential", action="store_true", help="sequential residual")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    model = make_model(options)
    times = {"plain": [], "fused": []}
    for _ in range(options.rounds):
        times["plain"].append(milliseconds_a_token(model, options))
        fused = seqfuse.apply_fused_kernels(model)
        times["fused"].append(milliseconds_a_token(model, options))
        calls = fused.calls
        passes = 1 + options.warmup + options.steps
        if calls != {name: passes * count for name, count in fused.expected_calls.items()}:
            raise SystemExit(f"{calls} calls in {passes} passes; expected {fused.expected_calls} in each")
        fused.undo()
    result = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "options": vars(options),
        "calls a token": fused.expected_calls,
        "milliseconds a token": {name: statistics.quantiles(found, n=4) for name, found in times.items()},
        "hidden states": differences(model, options),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
