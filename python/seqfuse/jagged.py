"""Jagged tensors: rows of all sequences in turn, and offsets [B + 1] where each begins.

Where the number of rows of a result follows from offsets alone (total, part_rows), it may be left out on the CPU. On
CUDA, where offsets are not read, and under torch.compile it must be given.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def lengths_to_offsets(lengths: Tensor) -> Tensor:
    """Lengths, int64 or int32 [B], to offsets, int64 [B + 1]: exclusive cumulative sum, which ends with the total."""
    return torch.ops.seqfuse.lengths_to_offsets(lengths)


def jagged_concat(parts: Sequence[Tensor], offsets: Sequence[Tensor]) -> Tensor:
    """Joins jagged tensors sequence by sequence.

    parts: [T_p, D] each, of one dtype, any. offsets: [B + 1] for each part. At most 8 parts on CUDA.
    Returns [sum of T_p, D], whose offsets are the sum of offsets.
    Raises ValueError where columns, dtypes or numbers of sequences differ.
    """
    return torch.ops.seqfuse.jagged_concat(parts, offsets)


def jagged_split(values: Tensor, part_offsets: Sequence[Tensor], part_rows: Sequence[int] = ()) -> list[Tensor]:
    """The inverse of jagged_concat: cuts each sequence at the lengths that part_offsets give.

    values: [T, D]. part_offsets: [B + 1] for each part. part_rows: the rows of each part, which its offsets end with.
    Returns [part_rows[p], D] for each part. Raises ValueError where the parts' rows do not add up to T.
    """
    return torch.ops.seqfuse.jagged_split(values, part_offsets, part_rows)


def jagged_to_dense(values: Tensor, offsets: Tensor, max_len: int, padding: float = 0.0) -> Tensor:
    """values [T, D] to [B, max_len, D]: shorter sequences are padded, longer ones are cut."""
    return torch.ops.seqfuse.jagged_to_dense(values, offsets, max_len, padding)


def dense_to_jagged(dense: Tensor, offsets: Tensor, total: int | None = None) -> Tensor:
    """dense [B, N, D] to [T, D], the first rows of each sequence.

    total: T, which offsets end with. Raises ValueError where a sequence is longer than N, or total does not fit.
    """
    return torch.ops.seqfuse.dense_to_jagged(dense, offsets, total)


def jagged_repeat(rows: Tensor, offsets: Tensor, total: int | None = None) -> Tensor:
    """Row b of rows [B, D] for each token of sequence b: [T, D]. total: T, which offsets end with."""
    return torch.ops.seqfuse.jagged_repeat(rows, offsets, total)


def interleave(a: Tensor, b: Tensor) -> Tensor:
    """Rows of a and b, [T, D] each, in turn: [2 T, D]."""
    return torch.ops.seqfuse.interleave(a, b)
