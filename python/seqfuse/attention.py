"""HSTU attention over jagged sequences."""

import torch
from torch import Tensor


def hstu_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_offsets: Tensor,
    k_offsets: Tensor | None = None,
    *,
    alpha: float,
    scaling_seqlen: int,
    causal: bool = True,
    target_group_size: int = 1,
    max_attn_len: int = 0,
    min_full_attn_seq_len: int = 0,
    num_contexts: Tensor | None = None,
    num_targets: Tensor | None = None,
    position_bias: Tensor | None = None,
    time_bias: Tensor | None = None,
    timestamps: Tensor | None = None,
    request_times: Tensor | None = None,
    max_seqlen: int = 0,
) -> Tensor:
    """out_i = sum_j M_ij silu(alpha <q_i, k_j> + bias_ij) / scaling_seqlen * v_j. No softmax.

    q: [Tq, H, d]; k, v: [Tk, H, d], any row and head stride. q_offsets, k_offsets: [B + 1], the same where k_offsets is
    None. Queries are the last positions of their keys, of which there are at least as many.

    The mask M, for c = num_contexts, t = num_targets (int64 [B], None: 0) of n keys: contexts, the first c, see all but
    the targets, and these too with causal=False. Others see what stands before them and themselves; targets, the last
    t, of targets only their own group of target_group_size. max_attn_len: tokens see no further back, 0: no such limit;
    min_full_attn_seq_len: the last so many before the targets, and the targets, see everything all the same.
    causal=False: no order.

    position_bias: [2 N - 1], at N - 1 + j - i, N at least the longest sequence. time_bias: [buckets], by the logarithm
    of t[i + 1] - t[j]; needs timestamps, int64 [Tk]; request_times, int64 [B], is the time after the last.

    max_seqlen: at least the longest sequence of keys; needed on CUDA. Returns [Tq, H, d].
    Raises ValueError for shapes, dtypes, offsets and counts that do not fit; on CUDA, where values of offsets and
    counts are not waited for, these fail an assertion on the GPU (docs/ops.md).
    """
    return torch.ops.seqfuse.hstu_attention(
        q,
        k,
        v,
        q_offsets,
        q_offsets if k_offsets is None else k_offsets,
        alpha,
        scaling_seqlen,
        causal,
        target_group_size,
        max_attn_len,
        min_full_attn_seq_len,
        num_contexts,
        num_targets,
        position_bias,
        time_bias,
        timestamps,
        request_times,
        max_seqlen,
    )
