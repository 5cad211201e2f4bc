"""Rows of tables by id, position and time.

Gradients of tables on CUDA are summed in any order, but in a fixed one under torch.use_deterministic_algorithms(True).
"""

import torch
from torch import Tensor


def embedding_lookup(table: Tensor, ids: Tensor, sparse: bool = False) -> Tensor:
    """Rows of table [V, D] by ids, int64 [T]: [T, D].

    sparse: the gradient of table is a sparse tensor of the rows that were read (not under torch.compile,
    where ValueError is raised). Raises IndexError for an id outside the table, on the CPU.
    """
    return torch.ops.seqfuse.embedding_lookup(table, ids, sparse)


def position_encoding(
    x: Tensor, table: Tensor, offsets: Tensor, num_targets: Tensor | None = None, scale: float = 1.0
) -> Tensor:
    """scale * x + table[position], positions counted from the start of each sequence.

    x: [T, D]. table: [rows, D]; later positions get its last row. num_targets: int64 [B], the tokens at the end of each
    sequence that share one position, or None. Raises ValueError where counts exceed their sequence.
    """
    return torch.ops.seqfuse.position_encoding(x, table, offsets, num_targets, scale)


def time_encoding(x: Tensor, table: Tensor, offsets: Tensor, timestamps: Tensor, unit: float = 60.0) -> Tensor:
    """x + table[bucket], bucket = floor(sqrt(age / unit)), at most the table's last row.

    x: [T, D]. table: [rows, D]. timestamps: int64 [T], in the unit of `unit` (seconds: 60 makes minutes); the age of a
    token is the time from it to the last of its sequence. Raises ValueError unless unit is positive.
    """
    return torch.ops.seqfuse.time_encoding(x, table, offsets, timestamps, unit)
