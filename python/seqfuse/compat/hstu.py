"""A drop-in replacement for hstu_attn_varlen_func of the packages `hstu_attn` and `hstu`.

Both argument orders work, with and without seqused_q and seqused_k. An unsupported argument raises NotImplementedError,
which names it. CPU tensors run the CPU operators (float32, float64).
"""

import inspect
import operator

import torch
from torch import Tensor

from seqfuse.attention import hstu_attention

# The arguments after cu_seqlens_k in the order with seqused_q. The other order is that of _attention's parameters.
_SEQUSED_ORDER = (
    *("seqused_q", "seqused_k", "max_seqlen_q", "max_seqlen_k", "scaling_seqlen"),
    *("num_contexts", "num_targets", "target_group_size", "window_size", "alpha", "rab", "has_drab"),
    *("kv_cache", "page_offsets", "page_ids", "last_page_lens", "func", "quant_mode"),
)


def hstu_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, *arguments, **keywords
) -> Tensor:
    """Attention with SiLU instead of softmax: out = silu(alpha q k^T) / scaling_seqlen * mask @ v, [total_q, H, d].

    Arguments by position in either order, or by name:

        (q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, num_contexts=None, num_targets=None,
         target_group_size=1, window_size=(-1, -1), alpha=1.0, rab=None, has_drab=False, kv_cache=None,
         page_offsets=None, page_ids=None, last_page_lens=None, cu_seqlens_t=None, func=None, scaling_seqlen=-1)
        (q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, max_seqlen_q, max_seqlen_k, scaling_seqlen=-1,
         num_contexts=None, num_targets=None, target_group_size=1, window_size=(-1, -1), alpha=1.0, rab=None,
         has_drab=False, kv_cache=None, page_offsets=None, page_ids=None, last_page_lens=None, func=None,
         quant_mode=-1)

    The second order is assumed if the argument after cu_seqlens_k is None or a tensor with dimensions. max_seqlen_q,
    max_seqlen_k, scaling_seqlen and target_group_size may be integer tensors without dimensions; reading a GPU tensor
    waits for the GPU.

    q: [total_q, H, d]; k, v: [total_k, H, d]. cu_seqlens_q, cu_seqlens_k: int32 or int64 [B + 1], from 0 to total_q and
    total_k; rows beyond the last sequence are an error. max_seqlen_q, max_seqlen_k: the longest sequences.
    num_contexts, num_targets: integers [B] or None, the number of tokens at the start that see the whole history, and
    at the end that see no targets outside their own group of target_group_size; both need a causal window.
    window_size: (-1, -1) everything, (-1, 0) causal, (w, 0) causal and w tokens back, (w, w) w tokens to either side;
    w is at least 1. alpha: scale of q k^T. scaling_seqlen: the divisor; -1 means max_seqlen_q.

    seqused_q, seqused_k, rab, has_drab, kv_cache, page_offsets, page_ids, last_page_lens, cu_seqlens_t (seq_offsets_t),
    func and quant_mode are accepted only with the values that disable them.
    Raises NotImplementedError for unsupported values, ValueError and TypeError for wrong ones.
    """
    # `if arguments:` would not trace under torch.compile if the tuple holds a symbolic number.
    if len(arguments) > 0 and _is_seqused(arguments[0]):
        if len(arguments) > len(_SEQUSED_ORDER):
            raise TypeError(
                f"hstu_attn_varlen_func() takes at most {len(_SEQUSED_ORDER) + 5} positional arguments where "
                f"seqused_q is one of them; {len(arguments) + 5} were given"
            )
        for name, value in zip(_SEQUSED_ORDER, arguments):
            if name in keywords:
                raise TypeError(f"hstu_attn_varlen_func() got multiple values for argument '{name}'")
            keywords[name] = value
        arguments = ()
    return _attention(q, k, v, cu_seqlens_q, cu_seqlens_k, *arguments, **keywords)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_contexts: Tensor | None = None,
    num_targets: Tensor | None = None,
    target_group_size: int = 1,
    window_size: tuple[int, int] = (-1, -1),
    alpha: float = 1.0,
    rab: None = None,
    has_drab: bool = False,
    kv_cache: None = None,
    page_offsets: None = None,
    page_ids: None = None,
    last_page_lens: None = None,
    cu_seqlens_t: None = None,
    func: None = None,
    scaling_seqlen: int = -1,
    *,
    seqused_q: None = None,
    seqused_k: None = None,
    seq_offsets_t: None = None,
    quant_mode: int | None = -1,
) -> Tensor:
    _check_turned_off(
        {
            "seqused_q": seqused_q,
            "seqused_k": seqused_k,
            "rab": rab,
            "has_drab": has_drab or None,
            "kv_cache": kv_cache,
            "page_offsets": page_offsets,
            "page_ids": page_ids,
            "last_page_lens": last_page_lens,
            "seq_offsets_t": seq_offsets_t,
            "cu_seqlens_t": cu_seqlens_t,
            "func": func,
            "quant_mode": None if quant_mode in (None, -1) else quant_mode,
        }
    )
    for name, value in {"q": q, "k": k, "v": v, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"hstu_attn_varlen_func: {name} is {value!r}; expected a tensor")
    if not isinstance(alpha, (float, int, torch.SymFloat, torch.SymInt)):
        raise TypeError(f"hstu_attn_varlen_func: alpha is {_described(alpha)}; expected a number")
    max_seqlen_q = _number("max_seqlen_q", max_seqlen_q)
    scaling_seqlen = _number("scaling_seqlen", scaling_seqlen)
    causal, max_attn_len = _window(window_size)
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
        scaling_seqlen=_divisor(max_seqlen_q, q) if scaling_seqlen == -1 else scaling_seqlen,
        causal=causal,
        target_group_size=_number("target_group_size", target_group_size),
        max_attn_len=max_attn_len,
        num_contexts=_counts("num_contexts", num_contexts),
        num_targets=_counts("num_targets", num_targets),
        max_seqlen=_number("max_seqlen_k", max_seqlen_k),
    )


# help() shows this signature; errors about missing, unknown or repeated arguments name this function.
hstu_attn_varlen_func.__signature__ = inspect.signature(_attention)
_attention.__qualname__ = hstu_attn_varlen_func.__qualname__

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


def _check_turned_off(values: dict) -> None:
    for name, value in values.items():
        if value is not None:
            raise NotImplementedError(f"hstu_attn_varlen_func: {name} is not supported; {_TURNED_OFF_BY_NONE[name]}")


def _is_seqused(value: object) -> bool:
    """Whether value is seqused_q (lengths [B] or None) rather than max_seqlen_q (a number)."""
    return value is None or (isinstance(value, Tensor) and value.dim() > 0)


def _number(name: str, value: object) -> int:
    if isinstance(value, (int, torch.SymInt)):
        return value
    if isinstance(value, Tensor):
        if value.dim() == 0 and value.dtype in _INTEGERS:
            return value.item()
        raise TypeError(f"hstu_attn_varlen_func: {name} is {_described(value)}; expected an integer")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"hstu_attn_varlen_func: {name} is {_described(value)}; expected an integer") from None


def _divisor(max_seqlen_q: int, q: Tensor) -> int:
    """max_seqlen_q; any number if q has no rows, because its longest sequence is 0."""
    if q.size(0) == 0:
        return 1
    # While torch.compile traces, a number read from a tensor has no value.
    if not torch.compiler.is_compiling() and max_seqlen_q < 1:
        raise ValueError(f"hstu_attn_varlen_func: max_seqlen_q is {max_seqlen_q}, but q has {q.size(0)} rows")
    return max_seqlen_q


def _counts(name: str, value: Tensor | None) -> Tensor | None:
    if value is None:
        return None
    if not isinstance(value, Tensor) or value.dtype not in _INTEGERS:
        raise TypeError(
            f"hstu_attn_varlen_func: {name} is {_described(value)}; expected a tensor of integers [B] or None"
        )
    return value.long()


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _described(value: object) -> str:
    return f"a tensor {list(value.shape)} of {value.dtype}" if isinstance(value, Tensor) else repr(value)


def _window(size: tuple[int, int]) -> tuple[bool, int]:
    """Whether the window is causal, and its size (0: unlimited)."""
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise TypeError(f"hstu_attn_varlen_func: window_size is {size!r}; expected two numbers, (left, right)")
    left, right = (_number("window_size", side) for side in size)
    if (left, right) == (-1, -1):
        return False, 0
    if (left, right) == (-1, 0):
        return True, 0
    if left >= 1 and right in (0, left):
        return right == 0, left
    raise NotImplementedError(
        f"hstu_attn_varlen_func: window_size is {(left, right)}; supported are (-1, -1) everything, (-1, 0) causal, "
        "(w, 0) causal and w tokens back, (w, w) w tokens either way, with w at least 1"
    )
