"""Row norms and dropout."""

import torch
from torch import Tensor


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias for each row.

    x: [T, D], any row stride. weight, bias: [D], dtype of x, or None. Returns [T, D].
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

    o, u: [T, D], any row stride. weight, bias: [D] or None. dropout: the probability that an element becomes 0, in
    [0, 1). The mask depends only on seed. Returns [T, D].
    Raises ValueError for other shapes, dtypes and probabilities.
    """
    return torch.ops.seqfuse.layer_norm_gate(o, u, weight, bias, eps, dropout, seed)


def l2_normalize(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Each row of x [T, D] divided by max(its norm, eps). Raises ValueError unless eps is positive."""
    return torch.ops.seqfuse.l2_normalize(x, eps)


def dropout(x: Tensor, p: float, seed: int) -> Tensor:
    """x * mask / (1 - p) for any shape; the mask depends only on seed. Raises ValueError unless 0 <= p < 1."""
    return torch.ops.seqfuse.dropout(x, p, seed)
