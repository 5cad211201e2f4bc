"""BERT in plain PyTorch compiled with max-autotune, and what surrounds attention, of it and of seqfuse's plans."""

import time
from collections.abc import Callable

import torch
from torch.nn import functional as F

import seqfuse

OWN, WITHOUT, OURS = "max-autotune", "max-autotune, no attention", "max-autotune, our attention"


class Autotuned:
    """Models compiled for one shape, each when it is first asked for. Masks are arguments: another compiles nothing."""

    def __init__(self, model) -> None:
        self.model = model
        self.compiled: dict[str, Callable] = {}

    def run_of(self, name: str, ids, mask) -> tuple[Callable, float | None]:
        """A function without arguments; the seconds that compiling and tuning took, if that was now.

        mask: a dense bool mask or None for OWN; a seqfuse.BlockMask for OURS.
        """
        attend = {
            OWN: lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
            WITHOUT: lambda q, k, v, mask: v,
            OURS: lambda q, k, v, mask: seqfuse.masked_attention(q, k, v, mask),
        }[name]
        seconds = None
        if name not in self.compiled:
            model = self.model

            def run(ids, mask):
                return model(ids, lambda q, k, v: attend(q, k, v, mask))

            self.compiled[name] = torch.compile(run, mode="max-autotune-no-cudagraphs")
            start = time.perf_counter()
            self.compiled[name](ids, mask)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - start
        compiled = self.compiled[name]
        return lambda: compiled(ids, mask), seconds


def attention_alone(shape: dict, ids, block_mask) -> Callable:
    """The attention calls of all layers, on q, k and v as the encoder has them: parts of one product's rows."""
    layers, heads = shape["num_hidden_layers"], shape["num_attention_heads"]
    dim = shape["hidden_size"] // heads
    rows = torch.randn(*ids.shape, 3, heads, dim, device=ids.device, dtype=torch.float16)
    q, k, v = (rows[:, :, part].transpose(1, 2) for part in range(3))

    def run():
        for _ in range(layers):
            if block_mask is None:
                out = F.scaled_dot_product_attention(q, k, v)
            else:
                out = seqfuse.masked_attention(q, k, v, block_mask)
        return out

    return run
