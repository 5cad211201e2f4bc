"""Softmax attention under any mask."""

from __future__ import annotations

import os

import torch
from torch import Tensor

BLOCK = 64
_UNLIMITED = -1


class BlockMask:
    """Which keys each query sees, as blocks of 64 queries and 64 keys: full ones, and partial ones with exact bitmaps.

    Made by the from_ functions and combined by & and |. A mask is for one number of queries and of keys; query q has
    position p = q + keys - queries among the keys. Errors are ValueErrors.

    batch: sequences with masks of their own; 1: the same for all. allowed: pairs of a query and a key. full, partial,
    blocks: numbers of blocks, blocks with the empty ones. density: allowed / all pairs. step: between the tokens of a
    block; more than 1 for dilated masks.
    """

    def __init__(self, rule, tables, queries, keys, device=None):
        """For the functions below. rule: (kind, integers) in postfix order; tables: tensors that the kinds use."""
        self._rule, self._tables = rule, tables
        self.queries, self.keys = int(queries), int(keys)
        *self.lists, sizes = torch.ops.seqfuse.build_block_mask(
            [kind for kind, _ in rule],
            [len(values) for _, values in rule],
            [value for _, values in rule for value in values],
            tables,
            self.queries,
            self.keys,
            torch.device(device or "cpu"),
        )
        self.sizes = sizes.tolist()
        self.batch, _, _, self.step, _, self.allowed = self.sizes

    @property
    def device(self) -> torch.device:
        return self.lists[0].device

    @property
    def full(self) -> int:
        return int((self.lists[2] < 0).sum())

    @property
    def partial(self) -> int:
        return self.lists[8].shape[0]

    @property
    def blocks(self) -> int:
        return self.batch * _blocks(self.queries, self.step) * _blocks(self.keys, self.step)

    @property
    def density(self) -> float:
        return self.allowed / max(self.batch * self.queries * self.keys, 1)

    def to(self, device) -> BlockMask:
        """The same mask on another device."""
        return self._with_lists([part.to(device) for part in self.lists])

    def _with_lists(self, lists) -> BlockMask:
        mask = object.__new__(BlockMask)
        mask.__dict__.update(self.__dict__, lists=lists)
        return mask

    def __and__(self, other: BlockMask) -> BlockMask:
        """What both allow."""
        return self._combined(other, "and")

    def __or__(self, other: BlockMask) -> BlockMask:
        """What either allows."""
        return self._combined(other, "or")

    def _combined(self, other, how):
        if (self.queries, self.keys) != (other.queries, other.keys):
            raise ValueError(
                f"BlockMask: combining one of {self.queries} queries and {self.keys} keys with one of {other.queries} "
                f"and {other.keys}; expected equal lengths"
            )
        rule = [*self._rule, *other._rule, (how, [])]
        return BlockMask(rule, [*self._tables, *other._tables], self.queries, self.keys, self.device)

    def __repr__(self):
        return (
            f"BlockMask(batch={self.batch}, queries={self.queries}, keys={self.keys}, density={self.density:.4f}, "
            f"full={self.full}, partial={self.partial}, blocks={self.blocks}, device='{self.device}')"
        )

    def to_dense(self) -> Tensor:
        """bool [batch, queries, keys], from the blocks: for tests and small masks."""
        size, memory = self.blocks * BLOCK**2, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if size >= memory:
            raise ValueError(
                f"BlockMask: a dense mask of {self.queries} queries and {self.keys} keys, batch {self.batch}, takes "
                f"{size * 1e-9:.0f} GB, and this machine has {memory * 1e-9:.0f} GB; use the blocks"
            )
        begin, column, bitmap, bits = (self.lists[i].cpu() for i in (0, 1, 2, 8))
        rows, columns = _blocks(self.queries, self.step), _blocks(self.keys, self.step)
        dense = torch.zeros(self.batch * rows, columns, BLOCK, BLOCK, dtype=torch.bool)
        row = torch.repeat_interleave(torch.arange(len(begin) - 1), begin.diff())
        words = torch.cat([bits, torch.full((1, BLOCK), -1)])[bitmap.long()]  # -1, a full block, is the last one
        dense[row, column.long()] = (words[..., None] >> torch.arange(BLOCK) & 1).bool()
        dense = dense.view(self.batch, rows, columns, BLOCK, BLOCK).transpose(2, 3)
        dense = dense.reshape(self.batch, rows * BLOCK, columns * BLOCK)
        queries, keys = (_tokens(n, self.step).flatten().argsort()[:n] for n in (self.queries, self.keys))
        return dense[:, queries][:, :, keys]

    @staticmethod
    def from_full(queries: int, keys: int | None = None, *, device=None) -> BlockMask:
        """Every query sees every key. keys: as many as queries unless given, here and below."""
        return BlockMask.from_window(None, None, queries, keys, device=device)

    @staticmethod
    def from_causal(queries: int, keys: int | None = None, *, device=None) -> BlockMask:
        """Keys up to p."""
        return BlockMask.from_window(None, 0, queries, keys, device=device)

    @staticmethod
    def from_window(
        left: int | None, right: int | None, queries: int, keys: int | None = None, *, step: int = 1, device=None
    ) -> BlockMask:
        """Keys p - left to p + right, both included; None: no limit. step: of these every step-th, counted from p."""
        for name, value in (("left", left), ("right", right)):
            if value is not None and value < 0:
                raise ValueError(f"BlockMask: {name} is {value}; expected 0 or more, or None for no limit")
        sides = [_UNLIMITED if side is None else side for side in (left, right)]
        return _of_kind("window", [*sides, step], [], queries, keys, device)

    @staticmethod
    def from_global(tokens: int, queries: int, keys: int | None = None, *, device=None) -> BlockMask:
        """The first tokens see all keys, and all queries see them."""
        return _of_kind("global", [tokens], [], queries, keys, device)

    @staticmethod
    def from_random_blocks(
        count: int, seed: int, queries: int, keys: int | None = None, *, block: int = BLOCK, device=None
    ) -> BlockMask:
        """Each block of positions sees count different blocks of keys, drawn from seed, the same on every machine."""
        return _of_kind("random_blocks", [count, block, seed], [], queries, keys, device)

    @staticmethod
    def from_longformer(side: int, tokens: int, queries: int, keys: int | None = None, *, device=None) -> BlockMask:
        """from_window(side, side) | from_global(tokens)."""
        rule = [("window", [side, side, 1]), ("global", [tokens]), ("or", [])]
        return BlockMask(rule, [], queries, queries if keys is None else keys, device)

    @staticmethod
    def from_bigbird(
        side: int, tokens: int, count: int, seed: int, queries: int, keys: int | None = None, *, device=None
    ) -> BlockMask:
        """from_longformer(side, tokens) | from_random_blocks(count, seed)."""
        rule = [("window", [side, side, 1]), ("global", [tokens]), ("or", [])]
        rule += [("random_blocks", [count, BLOCK, seed]), ("or", [])]
        return BlockMask(rule, [], queries, queries if keys is None else keys, device)

    @staticmethod
    def from_lengths(
        lengths: Tensor, queries: int, keys: int | None = None, *, key_lengths: Tensor | None = None, device=None
    ) -> BlockMask:
        """Padding: sequence b has lengths[b] queries and key_lengths[b] keys (the same unless given), int64 [B].

        Padded queries see nothing: their output is 0. device: that of lengths unless given, here and below.
        """
        tables = [lengths.long(), (lengths if key_lengths is None else key_lengths).long()]
        return _of_kind("lengths", [], tables, queries, keys, device or lengths.device)

    @staticmethod
    def from_documents(lengths: Tensor, queries: int, keys: int | None = None, *, device=None) -> BlockMask:
        """Documents packed one after the other: lengths int64 [B, documents]; a token sees its own document.

        Tokens after the last document see nothing; lengths may be 0.
        """
        return _of_kind("documents", [], [lengths.long()], queries, keys, device or lengths.device)

    @staticmethod
    def from_dense(allowed: Tensor, *, device=None) -> BlockMask:
        """allowed: bool [queries, keys] or [B, queries, keys]."""
        _check_rank("allowed", allowed, (2, 3), "[queries, keys] or [B, queries, keys]")
        table = allowed if allowed.dim() == 3 else allowed[None]
        return _of_kind("dense", [], [table.bool()], *table.shape[1:], device or allowed.device)

    @staticmethod
    def from_csr(offsets: Tensor, columns: Tensor, keys: int, *, device=None) -> BlockMask:
        """Query q sees columns[offsets[q]:offsets[q + 1]], ascending. offsets: [queries + 1] or [B, queries + 1].

        Offsets of all sequences count in one list of columns.
        """
        _check_rank("offsets", offsets, (1, 2), "[queries + 1] or [B, queries + 1]")
        table = offsets if offsets.dim() == 2 else offsets[None]
        tables = [table.long(), columns.long()]
        return _of_kind("csr", [], tables, table.shape[1] - 1, keys, device or offsets.device)

    @staticmethod
    def from_flex(mask_mod, queries: int, keys: int | None = None, *, batch: int = 1, device=None) -> BlockMask:
        """A mask of torch.nn.attention.flex_attention: mask_mod(b, h, q_idx, kv_idx), tensors without dimensions.

        Evaluated for each of batch sequences with h = 0, in tiles of 512 queries and 8192 keys: never the whole mask
        at once. q_idx counts queries from 0, whatever the number of keys, as it does there. Tensors that mask_mod reads
        must be on the device.
        """
        keys = queries if keys is None else keys
        if not callable(mask_mod):
            raise ValueError(f"BlockMask: mask_mod is {mask_mod!r}; expected a function of b, h, q_idx and kv_idx")
        if batch < 1 or queries < 0 or keys < 0:
            raise ValueError(f"BlockMask: batch {batch}, {queries} queries, {keys} keys; expected a batch of 1 or more")
        tables = _blocks_of_flex(mask_mod, batch, int(queries), int(keys), torch.device(device or "cpu"))
        return _of_kind("block_lists", [], tables, queries, keys, device)

    @staticmethod
    def from_intervals(intervals: Tensor, keys: int, *, device=None) -> BlockMask:
        """[queries, n, 2] or [B, queries, n, 2]: intervals [begin, end) of keys, ascending and without overlap.

        begin = end: no interval.
        """
        _check_rank("intervals", intervals, (3, 4), "[queries, n, 2] or [B, queries, n, 2]")
        table = intervals if intervals.dim() == 4 else intervals[None]
        return _of_kind("intervals", [], [table.long()], table.shape[1], keys, device or intervals.device)


def _blocks(tokens, step=1):
    return step * -((-tokens // step) // BLOCK)


def _tokens(tokens, step):
    """The tokens of each block, [blocks, BLOCK]; numbers from `tokens` on do not exist."""
    first = torch.arange(step)[:, None] + torch.arange(_blocks(tokens, step) // step * BLOCK) * step
    return first.view(-1, BLOCK)


def _blocks_of_flex(mask_mod, batch, queries, keys, device):
    """begins, columns, bitmaps, words: the blocks that are not empty, by sequence and block of queries."""
    at = torch.vmap(torch.vmap(mask_mod, in_dims=(None, None, None, 0)), in_dims=(None, None, 0, None))
    head = torch.zeros((), dtype=torch.long, device=device)
    shifts = torch.arange(BLOCK, device=device)
    rows, columns, words = ([torch.empty(0, *shape, dtype=torch.long, device=device)] for shape in ((), (), (BLOCK,)))
    for b in range(batch):
        for q0 in range(0, queries, 512):
            found = []
            q = torch.arange(q0, min(q0 + 512, queries), device=device)
            for k0 in range(0, keys, 8192):
                k = torch.arange(k0, min(k0 + 8192, keys), device=device)
                tile = at(head + b, head, q, k).bool()
                tile = torch.nn.functional.pad(tile, (0, -len(k) % BLOCK, 0, -len(q) % BLOCK))
                tile = tile.view(-1, BLOCK, tile.shape[1] // BLOCK, BLOCK).transpose(1, 2)
                row, column = tile.any(-1).any(-1).nonzero().unbind(1)
                bits = (tile[row, column].long() << shifts).sum(-1)
                found.append((row + b * _blocks(queries) + q0 // BLOCK, column + k0 // BLOCK, bits))
            if not found:
                continue
            row, column, bits = (torch.cat(parts) for parts in zip(*found))
            order = row.argsort(stable=True)  # columns ascend already
            for to, part in ((rows, row), (columns, column), (words, bits)):
                to.append(part[order])
    row, column, bits = (torch.cat(parts) for parts in (rows, columns, words))
    counts = torch.bincount(row, minlength=batch * _blocks(queries))
    partial = (bits != -1).any(1)
    bitmap = torch.where(partial, partial.cumsum(0) - 1, -1)
    return [torch.nn.functional.pad(counts.cumsum(0), (1, 0)), column, bitmap, bits[partial]]


def _of_kind(kind, integers, tables, queries, keys, device):
    return BlockMask([(kind, integers)], tables, queries, queries if keys is None else keys, device)


def _check_rank(name, tensor, ranks, layout):
    if tensor.dim() not in ranks:
        raise ValueError(f"BlockMask: {name} is {list(tensor.shape)}; expected {layout}")


def masked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: BlockMask,
    *,
    scale: float | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale * q k^T over the keys that the mask allows) v.

    q: [B, H, queries, d], k, v: [B, G, keys, d], any strides; H is a multiple of G, whose heads are shared (grouped
    heads). scale: d^-0.5 unless given. The mask has these queries and keys, and 1 or B sequences.

    Returns [B, H, queries, d], and with return_lse the log-sum-exp of the scores [B, H, queries]; both are
    differentiable. A query that sees no key has output 0, log-sum-exp -inf and gradient 0.
    CPU: float32 and float64. CUDA: float16 and bfloat16, head_dim a multiple of 8 up to 128, lse in float32.
    Raises ValueError for wrong shapes, dtypes and devices.
    """
    if scale is None:
        scale = q.shape[-1] ** -0.5
    out, lse = torch.ops.seqfuse.masked_attention(q, k, v, mask.lists, mask.sizes, float(scale))
    return (out, lse) if return_lse else out
