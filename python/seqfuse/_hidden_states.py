"""Compares the hidden states of a model with and without fused layers."""

import torch
from torch import Tensor


def check_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    """Raises RuntimeError unless they are equal up to rounding.

    Another operator, sum or norm differs by the size of the states themselves.
    """
    if len(found) != len(expected):
        raise RuntimeError(f"{len(found)} hidden states instead of {len(expected)}")
    for index, (ours, theirs) in enumerate(zip(found, expected)):
        difference = float((ours.double() - theirs.double()).norm() / theirs.double().norm().clamp_min(1e-30))
        allowed = 1e-3 if ours.dtype in (torch.float32, torch.float64) else 0.05
        if not difference <= allowed:
            raise RuntimeError(f"hidden state {index} differs by {difference:.2g} of its size")
