"""Norms over rows, and dropout."""

import torch
from torch import Tensor


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, of each row.

    x: [T, D], any row stride. weight, bias: [D], dtype of x; None leaves them out. Returns [T, D].
    Raises ValueError for other shapes and dtypes.
    """
    return torch.ops.seqfuse.layer_norm(x, weight, bias, eps)


def layer_norm_gate(
    o: Tensor,
    u: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    dropout: float = 0.0,
    seed: int = 0,
) -> Tensor:
    """dropout(u * layer_norm(o)) in one pass: the gate of an HSTU layer.

    o, u: [T, D], any row stride. weight, bias: [D] or None. dropout: the probability that an element becomes 0, at
    least 0 and below 1; the mask follows from seed alone, so that equal seeds give equal masks. Returns [T, D].
    Raises ValueError for other shapes, dtypes and probabilities.
    """
    return torch.ops.seqfuse.layer_norm_gate(o, u, weight, bias, eps, dropout, seed)


def l2_normalize(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Each row of x [T, D] divided by max(its norm, eps). Raises ValueError unless eps is positive."""
    return torch.ops.seqfuse.l2_normalize(x, eps)


def dropout(x: Tensor, p: float, seed: int) -> Tensor:
    """x * mask / (1 - p), of any shape; the mask follows from seed alone. Raises ValueError unless 0 <= p < 1."""
    return torch.ops.seqfuse.dropout(x, p, seed)
