"""seqfuse.masked_attention and BlockMask: every kind of mask against PyTorch's dense attention."""

import os

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

import seqfuse
from seqfuse import BlockMask

N = 130


def position(queries, keys):
    return torch.arange(queries)[:, None] + keys - queries, torch.arange(keys)[None]


def dense_cases(queries=N, keys=N):
    """(name, mask, what it allows: bool [B, queries, keys])."""
    p, k = position(queries, keys)
    q = torch.arange(queries)[:, None]
    near = (p - k).abs() <= 20
    first = (p < 3) | (k < 3)
    random = torch.rand(2, queries, keys) < 0.1
    lengths = torch.tensor([queries // 2, queries])
    real = lengths.view(2, 1, 1)
    offsets, columns = [], []
    for sequence in random:
        for row in sequence:
            offsets.append(len(columns))
            columns += row.nonzero().flatten().tolist()
        offsets.append(len(columns))
    bounds = torch.randint(keys + 1, (queries, 2, 2)).flatten(1).sort().values.view(queries, 2, 2)
    inside = ((bounds[:, :, :1] <= k) & (k < bounds[:, :, 1:])).any(1)
    documents = torch.tensor([[keys // 3, 0, keys // 2]])
    document = torch.repeat_interleave(torch.arange(3), documents[0])
    document = F.pad(document, (0, keys - len(document)), value=-1)
    of_query = document[p.flatten().clamp(min=0)]
    same = (of_query[:, None] == document[None]) & (of_query[:, None] >= 0) & (p >= 0)
    return [
        ("full", BlockMask.from_full(queries, keys), torch.ones(queries, keys)),
        ("causal", BlockMask.from_causal(queries, keys), k <= p),
        ("window", BlockMask.from_window(20, 20, queries, keys), near),
        ("left", BlockMask.from_window(5, None, queries, keys), k >= p - 5),
        ("dilated", BlockMask.from_window(20, 20, queries, keys, step=2), near & ((p - k) % 2 == 0)),
        ("global", BlockMask.from_global(3, queries, keys), first & ((p >= 0) | (k < 3))),
        ("longformer", BlockMask.from_longformer(20, 3, queries, keys), near | (first & ((p >= 0) | (k < 3)))),
        ("padding", BlockMask.from_lengths(lengths, queries, keys, key_lengths=lengths.clamp(max=keys)), None),
        ("dense", BlockMask.from_dense(random), random),
        ("csr", BlockMask.from_csr(torch.tensor(offsets).view(2, -1), torch.tensor(columns), keys), random),
        ("intervals", BlockMask.from_intervals(bounds, keys), inside),
        ("documents", BlockMask.from_documents(documents, queries, keys), same),
        ("and", BlockMask.from_dense(random) & BlockMask.from_causal(queries, keys), random & (k <= p)),
        ("or", BlockMask.from_dense(random) | BlockMask.from_causal(queries, keys), random | (k <= p)),
    ], (q < real) & (k < real.clamp(max=keys))


@pytest.mark.parametrize(("queries", "keys"), [(N, N), (64, 64), (3, 200), (200, 70), (1, 1)])
def test_masks_are_what_they_say(queries, keys):
    cases, padding = dense_cases(queries, keys)
    for name, mask, allowed in cases:
        expected = (padding if allowed is None else allowed).bool()
        expected = expected if expected.dim() == 3 else expected[None]
        assert torch.equal(mask.to_dense(), expected), name
        assert mask.allowed == expected.sum(), name
        assert mask.density == pytest.approx(expected.float().mean().item()), name


def test_bigbird_is_longformer_and_random_blocks():
    mask = BlockMask.from_bigbird(96, 64, 3, 7, 1024)
    parts = BlockMask.from_longformer(96, 64, 1024) | BlockMask.from_random_blocks(3, 7, 1024)
    assert torch.equal(mask.to_dense(), parts.to_dense())
    random = BlockMask.from_random_blocks(3, 7, 1024)
    assert (random.full, random.partial, random.blocks) == (48, 0, 256)
    assert "queries=1024" in repr(mask)


@pytest.mark.parametrize(("queries", "keys"), [(N, N), (1, 600), (600, 8300)])
def test_flex_masks_are_the_same(queries, keys):
    documents = torch.arange(2 * keys).view(2, keys) // 70

    def near_or_same(b, h, q, k):
        return ((q - k).abs() <= 10) | (documents[b, k] == 1) & (q < 500)

    mask = BlockMask.from_flex(near_or_same, queries, keys, batch=2)
    index = torch.arange(queries)[:, None], torch.arange(keys)
    expected = torch.stack([near_or_same(b, 0, *index) for b in range(2)])
    assert torch.equal(mask.to_dense(), expected)
    causal = BlockMask.from_flex(lambda b, h, q, k: q >= k, queries, keys) & mask
    assert torch.equal(causal.to_dense(), expected & (index[0] >= index[1]))


def test_flex_masks_of_long_sequences_take_little_memory():
    mask = BlockMask.from_flex(lambda b, h, q, k: (q - k).abs() <= 3, 6000)
    assert mask.allowed == 7 * 6000 - 12
    assert sum(part.nbytes for part in mask.lists) < 1 << 18  # 36 MB if dense


def test_dense_masks_larger_than_memory_are_refused(monkeypatch):
    mask = BlockMask.from_causal(100)
    monkeypatch.setattr(os, "sysconf", lambda name: 64)  # 64 pages of 64 bytes
    with pytest.raises(ValueError, match="a dense mask of 100 queries and 100 keys, batch 1, takes 0 GB"):
        mask.to_dense()


def dense_attention(q, k, v, allowed):
    """F.scaled_dot_product_attention, with zeros for queries that see nothing."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    sees = allowed.any(-1, keepdim=True)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=(allowed | ~sees)[:, None])
    return out.masked_fill(~sees[:, None], 0)


@pytest.mark.parametrize("index", range(14))
def test_attention_is_pytorchs(index):
    cases, padding = dense_cases()
    name, mask, allowed = cases[index]
    allowed = (padding if allowed is None else allowed).bool()
    allowed = allowed if allowed.dim() == 3 else allowed[None]

    def run(attention):
        torch.manual_seed(2)
        q = torch.randn(2, 4, N, 16, dtype=torch.double, requires_grad=True)
        k, v = torch.randn(2, 2, 2, N, 16, dtype=torch.double).requires_grad_()
        out = attention(q, k, v)
        return out, torch.autograd.grad((out * torch.randn_like(out)).sum(), (q, k, v))

    ours = run(lambda q, k, v: seqfuse.masked_attention(q, k, v, mask))
    torch.testing.assert_close(ours, run(lambda q, k, v: dense_attention(q, k, v, allowed)), msg=lambda m: name + m)


def test_lse_and_scale():
    q, k, v = torch.randn(3, 1, 2, 70, 8, dtype=torch.double)
    mask = BlockMask.from_lengths(torch.tensor([50]), 70)
    out, lse = seqfuse.masked_attention(q, k, v, mask, scale=0.3, return_lse=True)
    expected = (0.3 * q[:, :, :50] @ k[:, :, :50].transpose(2, 3)).logsumexp(-1)
    torch.testing.assert_close(lse[:, :, :50], expected)
    assert torch.all(lse[:, :, 50:] == -torch.inf)
    assert torch.all(out[:, :, 50:] == 0)


def test_compiles_once_for_all_lengths():
    counter = CompileCounterWithBackend("aot_eager")

    def attend(q, k, v, mask):
        return seqfuse.masked_attention(q * 2, k, v, mask).square()

    compiled = torch.compile(attend, backend=counter, fullgraph=True)
    counts = []
    # PyTorch compiles sizes of 0 and 1 apart, so each mask here has several pairs of blocks and bitmaps.
    for n in (130, 300, 200, 500, 1000):
        inputs = [torch.randn(1, 2, n, 8, requires_grad=True) for _ in range(3)]
        mask = BlockMask.from_causal(n)
        expected = torch.autograd.grad(attend(*inputs, mask).sum(), inputs)
        torch.testing.assert_close(torch.autograd.grad(compiled(*inputs, mask).sum(), inputs), expected)
        counts.append(counter.frame_count)
    assert counts[2:] == [counts[1]] * 3  # once for the first length, at most once more


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BlockMask.from_window(-1, 0, 8), "left is -1; expected 0 or more, or None for no limit"),
        (lambda: BlockMask.from_window(1, 1, 8, step=0), "step is 0; expected 1 or more"),
        (lambda: BlockMask.from_flex(None, 8), "mask_mod is None; expected a function of b, h, q_idx and kv_idx"),
        (lambda: BlockMask.from_flex(len, 8, batch=0), "batch 0, 8 queries, 8 keys; expected a batch of 1 or more"),
        (lambda: BlockMask.from_global(-2, 8), "tokens is -2; expected 0 or more"),
        (lambda: BlockMask.from_dense(torch.ones(8)), r"allowed is \[8\]; expected \[queries, keys\] or \[B,"),
        (lambda: BlockMask.from_csr(torch.tensor([0, 2]), torch.tensor([3, 1]), 5), "has column 1 after 3; expected"),
        (lambda: BlockMask.from_csr(torch.tensor([0, 1]), torch.tensor([5]), 5), "has column 5; expected 0 to 4"),
        (lambda: BlockMask.from_csr(torch.tensor([0, 2]), torch.tensor([0]), 5), "offset 1 of sequence 0 is 2"),
        (lambda: BlockMask.from_intervals(torch.tensor([[[0, 4], [3, 5]]]), 9), r"\[3, 5\) after one that ends at 4"),
        (lambda: BlockMask.from_lengths(torch.tensor([9]), 8), "sequence 0 has 9 queries and 9 keys; expected"),
        (lambda: BlockMask.from_documents(torch.tensor([[5, 4]]), 8), "a document of 4 tokens after 5"),
        (lambda: BlockMask.from_full(8) & BlockMask.from_full(9), "combining one of 8 queries and 8 keys with one"),
    ],
)
def test_wrong_masks_are_explained(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_wrong_arguments_are_explained():
    q = torch.randn(2, 4, 8, 16)

    def attend(mask, q=q, k=q, v=q):
        return seqfuse.masked_attention(q, k, v, mask)

    with pytest.raises(ValueError, match="the mask is for 8192 queries and 8192 keys, but q has 8 and k has 8"):
        attend(BlockMask.from_causal(8192))
    with pytest.raises(ValueError, match=r"the mask has 3 sequences; expected 2 \(the batch of q\) or 1"):
        attend(BlockMask.from_lengths(torch.tensor([1, 2, 3]), 8))
    with pytest.raises(ValueError, match="q has 4 heads and k has 3"):
        attend(BlockMask.from_full(8), k=q[:, :3], v=q[:, :3])
    with pytest.raises(ValueError, match="q is Half; expected Float or Double"):
        attend(BlockMask.from_full(8), *[q.half()] * 3)
