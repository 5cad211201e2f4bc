"""Softmax over items that never makes [T, items, D]."""

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
    """Cross entropy of the target among itself and K negatives, at each position: [T], float32 for 16-bit types.

    hidden: [T, D]; table: [V, D]; logits are <hidden, row> / temperature (normalise both before, if wanted). targets:
    int64 [T]; negatives: int32 [T, K], ids as well; those equal to the target count for nothing.
    sparse_table_grad: the gradient of table is sparse; on the CPU, not under torch.compile.
    Raises ValueError for other shapes and dtypes, IndexError for an id outside the table, on the CPU.
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
    """The same over all rows of table that catalogue, int64 [C], lists: each once, every target among them.

    seen: int64 [T], ids that a position and all later ones of its sequence leave out, but for their target; needs
    offsets [B + 1]. Returns [T]. Raises ValueError for a target that catalogue does not list, on the CPU.
    """
    return torch.ops.seqfuse.full_softmax_loss(hidden, table, targets, catalogue, temperature, seen, offsets)


def sample_uniform(pool: Tensor, rows: int, per_row: int, seed: int) -> Tensor:
    """Ids, int32 [rows, per_row], drawn from pool, int64 [C], with replacement; they follow from seed alone."""
    return torch.ops.seqfuse.sample_uniform(pool, rows, per_row, seed)
