"""Row norms and dropout."""

import torch
from torch import Tensor


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias for each row.

    x: [T, D], any row stride. weight, bias: [D], dtype of x, or None. Returns [T, D].
    Raises ValueError for other shapes and dtypes.
    """
    return torch.ops.seqfuse.layer_norm(x, weight, bias, eps)


def layer_norm_residual(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """layer_norm(x) + residual in one pass, with one rounding.

    x, residual: [T, D], any row stride. weight, bias: [D] or None. Returns [T, D].
    Raises ValueError for other shapes and dtypes.
    """
    return torch.ops.seqfuse.layer_norm_residual(x, residual, weight, bias, eps)


def fused_layernorm_residual(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """layer_norm_residual for tensors of any rank: x, residual [..., D]. Returns the shape of x."""
    if residual.shape != x.shape:
        raise ValueError(
            f"fused_layernorm_residual: residual is {list(residual.shape)}; expected {list(x.shape)} (like x)"
        )
    columns = x.shape[-1]
    y = layer_norm_residual(x.reshape(-1, columns), residual.reshape(-1, columns), weight, bias, eps)
    return y.view(x.shape)


def add_layer_norm(
    terms: list[Tensor], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """s = the sum of 1 to 3 terms, and layer_norm(s), in one pass.

    terms: [T, D] each, added in order, each sum rounded to their dtype, as PyTorch adds. Returns (s, layer_norm(s)).
    Raises ValueError for other shapes and dtypes.
    """
    return torch.ops.seqfuse.add_layer_norm(terms, weight, bias, eps)


def dual_layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    weight2: Tensor | None = None,
    bias2: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """layer_norm(x) with two weights and biases, in one pass: the norms of a parallel transformer block.

    x: [T, D], any row stride. weight, bias, weight2, bias2: [D] or None. Returns two [T, D].
    Raises ValueError for other shapes and dtypes.
    """
    return torch.ops.seqfuse.dual_layer_norm(x, weight, bias, weight2, bias2, eps)


def add_dual_layer_norm(
    terms: list[Tensor],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    weight2: Tensor | None = None,
    bias2: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """s as in add_layer_norm, and dual_layer_norm(s), in one pass: between two parallel blocks.

    GPT-NeoX's (mlp + attention) + hidden is terms = [mlp, attention, hidden]. Returns (s, y, y2), [T, D] each.
    """
    return torch.ops.seqfuse.add_dual_layer_norm(terms, weight, bias, weight2, bias2, eps)


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
