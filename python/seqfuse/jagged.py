"""Jagged tensors: the rows of all sequences, concatenated; offsets [B + 1] say where each sequence starts.

total and part_rows give the number of rows of a result if it follows only from the values of offsets. They are optional
on the CPU, and required on CUDA, where offsets are not read, and under torch.compile.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def lengths_to_offsets(lengths: Tensor) -> Tensor:
    """Lengths, int64 or int32 [B], to offsets, int64 [B + 1]: exclusive cumulative sum, ending with the total."""
    return torch.ops.seqfuse.lengths_to_offsets(lengths)


def jagged_concat(parts: Sequence[Tensor], offsets: Sequence[Tensor]) -> Tensor:
    """Joins jagged tensors sequence by sequence.

    parts: [T_p, D] each, all of the same dtype (any). offsets: [B + 1] for each part. At most 8 parts on CUDA.
    Returns [sum of T_p, D]; its offsets are the sum of the parts' offsets.
    Raises ValueError if columns, dtypes or numbers of sequences differ.
    """
    return torch.ops.seqfuse.jagged_concat(parts, offsets)


def jagged_split(values: Tensor, part_offsets: Sequence[Tensor], part_rows: Sequence[int] = ()) -> list[Tensor]:
    """The inverse of jagged_concat: splits each sequence into parts with the lengths that part_offsets give.

    values: [T, D]. part_offsets: [B + 1] for each part. part_rows: each part's rows, the last value of its offsets.
    Returns [part_rows[p], D] for each part. Raises ValueError if the parts' rows do not add up to T.
    """
    return torch.ops.seqfuse.jagged_split(values, part_offsets, part_rows)


def jagged_to_dense(values: Tensor, offsets: Tensor, max_len: int, padding: float = 0.0) -> Tensor:
    """values [T, D] to [B, max_len, D]: shorter sequences are padded, longer ones truncated."""
    return torch.ops.seqfuse.jagged_to_dense(values, offsets, max_len, padding)


def dense_to_jagged(dense: Tensor, offsets: Tensor, total: int | None = None) -> Tensor:
    """dense [B, N, D] to [T, D], the first rows of each sequence.

    total: T, the last value of offsets. Raises ValueError if a sequence is longer than N or total is wrong.
    """
    return torch.ops.seqfuse.dense_to_jagged(dense, offsets, total)


def jagged_repeat(rows: Tensor, offsets: Tensor, total: int | None = None) -> Tensor:
    """Row b of rows [B, D] for each token of sequence b: [T, D]. total: T, the last value of offsets."""
    return torch.ops.seqfuse.jagged_repeat(rows, offsets, total)


def interleave(a: Tensor, b: Tensor) -> Tensor:
    """Alternating rows of a and b, [T, D] each: [2 T, D]."""
    return torch.ops.seqfuse.interleave(a, b)
