"""Rows of tables by id, position and time.

On CUDA, gradients of tables are summed in an arbitrary order, or in a fixed order under
torch.use_deterministic_algorithms(True).
"""

import torch
from torch import Tensor


def embedding_lookup(table: Tensor, ids: Tensor, sparse: bool = False) -> Tensor:
    """Rows of table [V, D] by ids, int64 [T]: [T, D].

    sparse: the gradient of table is a sparse tensor of the rows read (under torch.compile this raises ValueError).
    On the CPU, raises IndexError for an id outside the table.
    """
    return torch.ops.seqfuse.embedding_lookup(table, ids, sparse)


def position_encoding(
    x: Tensor, table: Tensor, offsets: Tensor, num_targets: Tensor | None = None, scale: float = 1.0
) -> Tensor:
    """scale * x + table[position], positions counted from the start of each sequence.

    x: [T, D]. table: [rows, D]; positions beyond it get its last row. num_targets: int64 [B] or None, the number of
    tokens at the end of each sequence that share one position. Raises ValueError if a count exceeds its sequence.
    """
    return torch.ops.seqfuse.position_encoding(x, table, offsets, num_targets, scale)


def time_encoding(x: Tensor, table: Tensor, offsets: Tensor, timestamps: Tensor, unit: float = 60.0) -> Tensor:
    """x + table[bucket], where bucket = min(floor(sqrt(age / unit)), rows - 1).

    x: [T, D]. table: [rows, D]. timestamps: int64 [T]. A token's age is the time from it to the last token of its
    sequence; unit divides it (60: ages in seconds become minutes). Raises ValueError unless unit is positive.
    """
    return torch.ops.seqfuse.time_encoding(x, table, offsets, timestamps, unit)
