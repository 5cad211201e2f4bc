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

    q: [Tq, H, d]; k, v: [Tk, H, d], any row and head stride. q_offsets, k_offsets: [B + 1]; k_offsets=None: the same as
    q_offsets. A sequence has at most as many queries as keys; its queries are its last positions.

    The mask M of a sequence of n keys, with c = num_contexts and t = num_targets (int64 [B]; None: 0):
    - contexts, the first c tokens, see all tokens but the targets;
    - other tokens see themselves and earlier tokens; targets, the last t tokens, see no targets outside their own group
      of target_group_size;
    - causal=False removes the order: tokens also see later ones, and contexts also see targets.
    max_attn_len limits how far a token sees (0: no limit). With min_full_attn_seq_len > 0 the targets, and this many
    tokens before them, ignore that limit.

    position_bias: [2 N - 1], read at N - 1 + j - i; N is at least the longest sequence. time_bias: [buckets], by the
    logarithm of t[i + 1] - t[j]; needs timestamps, int64 [Tk], and takes the time after the last token from
    request_times, int64 [B].

    max_seqlen: at least the longest sequence of keys; required on CUDA. Returns [Tq, H, d].
    Raises ValueError for wrong shapes, dtypes, offsets and counts. On CUDA, wrong values of offsets and counts fail a
    device assertion instead (docs/ops.md).
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
