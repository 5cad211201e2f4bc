"""Softmax losses over items that never materialise [T, items, D]."""

import torch
from torch import Tensor


def sampled_softmax_loss(
    hidden: Tensor,
    table: Tensor,
    targets: Tensor,
    negatives: Tensor,
    temperature: float = 1.0,
    sparse_table_grad: bool = False,
) -> Tensor:
    """Cross entropy of the target against K negatives at each position: [T], float32 for 16-bit types.

    hidden: [T, D]; table: [V, D]; logits are <hidden, row> / temperature (normalise both first if needed). targets:
    int64 [T]; negatives: int32 [T, K]; both are ids, and negatives equal to the target are ignored.
    sparse_table_grad: the gradient of table is sparse; CPU only, not under torch.compile.
    Raises ValueError for other shapes and dtypes and, on the CPU, IndexError for an id outside the table.
    """
    return torch.ops.seqfuse.sampled_softmax_loss(hidden, table, targets, negatives, temperature, sparse_table_grad)


def full_softmax_loss(
    hidden: Tensor,
    table: Tensor,
    targets: Tensor,
    catalogue: Tensor,
    temperature: float = 1.0,
    seen: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Cross entropy over the rows of table listed in catalogue, int64 [C]: distinct ids that include all targets.

    seen: int64 [T], ids to exclude at their own and all later positions of their sequence, except where they are the
    target; needs offsets [B + 1]. Returns [T]. On the CPU, raises ValueError for a target missing from catalogue.
    """
    return torch.ops.seqfuse.full_softmax_loss(hidden, table, targets, catalogue, temperature, seen, offsets)


def sample_uniform(pool: Tensor, rows: int, per_row: int, seed: int) -> Tensor:
    """Ids, int32 [rows, per_row], drawn with replacement from pool, int64 [C]; they depend only on seed."""
    return torch.ops.seqfuse.sample_uniform(pool, rows, per_row, seed)
