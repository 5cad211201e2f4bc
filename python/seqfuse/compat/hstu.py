"""hstu_attn_varlen_func as the packages `hstu_attn` and `hstu` have it: replace their import by this one.

Both orders of its arguments work, that with seqused_q and seqused_k too. What is not supported raises
NotImplementedError and names the argument. CPU tensors run the CPU operators (float32, float64).
"""

from torch import Tensor

from seqfuse.attention import hstu_attention

_MASKS = ("num_contexts", "num_targets", "target_group_size", "window_size", "alpha", "rab", "has_drab")
_PAGES = ("kv_cache", "page_offsets", "page_ids", "last_page_lens")
_ORDER = ("max_seqlen_q", "max_seqlen_k", *_MASKS, *_PAGES)
_SEQUSED_ORDER = (
    *("seqused_q", "seqused_k", "max_seqlen_q", "max_seqlen_k", "scaling_seqlen"),
    *(*_MASKS, *_PAGES, "func", "quant_mode"),
)


def hstu_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, *arguments, **keywords
) -> Tensor:
    """Attention with SiLU in place of softmax: out = silu(alpha q k^T) / scaling_seqlen * mask @ v, [total_q, H, d].

    q: [total_q, H, d]; k, v: [total_k, H, d]. cu_seqlens_q, cu_seqlens_k: int32 or int64 [B + 1]. Then, in this order
    or by name:

    max_seqlen_q, max_seqlen_k: the longest sequences. num_contexts, num_targets: integers [B] or None, tokens at the
    start that see all history, and at the end that see their own group of target_group_size alone; both need a causal
    window. window_size: (-1, -1) everything, (-1, 0) causal, (w, 0) causal and w tokens back, (w, w) w tokens either
    way; w is at least 1. alpha: scale of q k^T.

    By name: scaling_seqlen: the divisor, -1 is max_seqlen_q. seqused_q, seqused_k, rab, has_drab, kv_cache,
    page_offsets, page_ids, last_page_lens, seq_offsets_t, cu_seqlens_t, func, quant_mode are taken with the values that
    turn them off.

    The other order, where seqused_q, seqused_k stand before max_seqlen_q, max_seqlen_k, scaling_seqlen, and func,
    quant_mode at the end, is told by the first argument after cu_seqlens_k, which is not a number there.
    Raises NotImplementedError for what is not supported, ValueError and TypeError for what is wrong.
    """
    seqused = bool(arguments) and (arguments[0] is None or isinstance(arguments[0], Tensor))
    order = _SEQUSED_ORDER if seqused else _ORDER
    if len(arguments) > len(order):
        raise TypeError(f"hstu_attn_varlen_func: {len(arguments) + 5} positional arguments; at most {len(order) + 5}")
    for name, value in zip(order, arguments):
        if name in keywords:
            raise TypeError(f"hstu_attn_varlen_func: {name} is given twice, by position and by name")
        keywords[name] = value
    return _attention(q, k, v, cu_seqlens_q, cu_seqlens_k, **keywords)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    *,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_contexts: Tensor | None = None,
    num_targets: Tensor | None = None,
    target_group_size: int = 1,
    window_size: tuple[int, int] = (-1, -1),
    alpha: float = 1.0,
    has_drab: bool = False,
    quant_mode: int | None = -1,
    scaling_seqlen: int = -1,
    **unsupported,
) -> Tensor:
    unsupported |= {"has_drab": has_drab or None, "quant_mode": None if quant_mode in (None, -1) else quant_mode}
    for name, value in unsupported.items():
        if name not in _TURNED_OFF_BY_NONE:
            raise TypeError(f"hstu_attn_varlen_func: unexpected argument {name}")
        if value is not None:
            raise NotImplementedError(f"hstu_attn_varlen_func: {name} is not supported; {_TURNED_OFF_BY_NONE[name]}")
    causal, max_attn_len = _window(*window_size)
    if not causal and (num_contexts is not None or num_targets is not None):
        raise ValueError(
            f"hstu_attn_varlen_func: num_contexts and num_targets need a causal window, (-1, 0) or (w, 0); "
            f"window_size is {tuple(window_size)}"
        )
    return hstu_attention(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        alpha=alpha,
        scaling_seqlen=max_seqlen_q if scaling_seqlen == -1 else scaling_seqlen,
        causal=causal,
        target_group_size=target_group_size,
        max_attn_len=max_attn_len,
        num_contexts=None if num_contexts is None else num_contexts.long(),
        num_targets=None if num_targets is None else num_targets.long(),
        max_seqlen=max_seqlen_k,
    )


_TURNED_OFF_BY_NONE = {
    "seqused_q": "cut q by cu_seqlens_q",
    "seqused_k": "cut k and v by cu_seqlens_k",
    "rab": "seqfuse.hstu_attention has relative bias as vectors by position and time",
    "has_drab": "pass False",
    "kv_cache": "pass all keys and values in k and v",
    "page_offsets": "pass all keys and values in k and v",
    "page_ids": "pass all keys and values in k and v",
    "last_page_lens": "pass all keys and values in k and v",
    "seq_offsets_t": "pass all keys and values in k and v",
    "cu_seqlens_t": "pass all keys and values in k and v",
    "func": "arbitrary masks are not supported",
    "quant_mode": "pass -1, and bfloat16 or float16 on CUDA",
}


def _window(left: int, right: int) -> tuple[bool, int]:
    """Whether it is causal, and how far it goes; 0: without limit."""
    if (left, right) == (-1, -1):
        return False, 0
    if (left, right) == (-1, 0):
        return True, 0
    if left >= 1 and right in (0, left):
        return right == 0, left
    raise NotImplementedError(
        f"hstu_attn_varlen_func: window_size is {(left, right)}; supported are (-1, -1), (-1, 0), (w, 0) and (w, w) "
        "with w at least 1"
    )
