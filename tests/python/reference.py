"""The reference: HSTU in plain PyTorch, one sequence at a time."""

import torch
from torch.nn import functional


def mask(queries, keys, *, contexts=0, targets=0, group=1, window=0, full=0, causal=True):
    """Bool [queries, keys]: which keys each query sees; queries are the last positions of the keys."""
    rows = []
    history_end = keys - targets
    for i in range(keys - queries, keys):
        row = []
        for j in range(keys):
            visible = j <= i or not causal
            if i >= history_end and j >= history_end:
                visible &= (i - history_end) // group == (j - history_end) // group
            place_i, place_j, end = (max(0, at - contexts + 1) for at in (i, j, history_end))
            everything = full > 0 and place_i >= end - full
            if window > 0 and not everything:
                visible &= abs(place_i - place_j) <= window
            row.append(visible or (i < contexts and j < history_end))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.bool).reshape(queries, keys)


def attention(q, k, v, q_offsets, k_offsets, *, alpha, scaling_seqlen, contexts=None, targets=None, **options):
    """Like seqfuse.hstu_attention without bias; contexts, targets: lists of integers."""
    outputs = []
    q_offsets, k_offsets = q_offsets.tolist(), k_offsets.tolist()
    for b in range(len(q_offsets) - 1):
        queries, keys = slice(*q_offsets[b : b + 2]), slice(*k_offsets[b : b + 2])
        visible = mask(
            queries.stop - queries.start,
            keys.stop - keys.start,
            contexts=contexts[b] if contexts else 0,
            targets=targets[b] if targets else 0,
            **options,
        ).to(q.device)
        scores = torch.einsum("ihd,jhd->hij", q[queries], k[keys]) * alpha
        weights = functional.silu(scores) / scaling_seqlen * visible
        outputs.append(torch.einsum("hij,jhd->ihd", weights, v[keys]))
    return torch.cat(outputs)


def layer(layer, x, offsets, **options):
    """seqfuse.HSTULayer without bias and dropout."""
    inner = layer.num_heads * layer.head_dim
    normed = functional.layer_norm(x, x.shape[1:], layer.input_norm_weight, layer.input_norm_bias, layer.norm_epsilon)
    u, v, q, k = functional.silu(normed @ layer.uvqk_weight + layer.uvqk_bias).split(inner, 1)
    heads = (-1, layer.num_heads, layer.head_dim)
    attended = attention(
        q.view(heads),
        k.view(heads),
        v.view(heads),
        offsets,
        offsets,
        alpha=layer.alpha,
        scaling_seqlen=layer.scaling_seqlen,
        **options,
    ).flatten(1)
    gated = u * functional.layer_norm(
        attended, (inner,), layer.output_norm_weight, layer.output_norm_bias, layer.norm_epsilon
    )
    return x + gated @ layer.output_weight


def expect_oracle_rule(actual, plain, exact, dtype):
    """Tensors by name: at most twice ("out") or five times (gradients) the error of plain, or one rounding."""
    assert actual.keys() == exact.keys()
    for name, value in actual.items():
        reference = exact[name]
        error, allowed = ((v.cpu().double() - reference).abs().max() for v in (value, plain[name]))
        factor = 2 if name == "out" else 5
        assert error <= factor * allowed + torch.finfo(dtype).eps * reference.abs().max(), name
