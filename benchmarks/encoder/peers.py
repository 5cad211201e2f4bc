"""Ways to run BERT in PyTorch beside seqfuse.Encoder: eager, compiled, with FlexAttention, Hugging Face's."""

import copy
import pathlib

import torch
from autotuned import Autotuned
from plain_bert import make_model, write_checkpoint
from torch.nn import functional as F

import seqfuse


def block_mask_of(mask: str, length: int, device=None) -> seqfuse.BlockMask:
    kind, _, rest = mask.partition(":")
    n = [int(value) for value in rest.split(",")] if rest else []
    make = seqfuse.BlockMask
    return {
        "causal": lambda: make.from_causal(length, device=device),
        "sliding": lambda: make.from_window(n[0], n[0], length, device=device),
        "dilated": lambda: make.from_window(n[0], n[0], length, step=n[1], device=device),
        "longformer": lambda: make.from_longformer(n[0], n[1], length, device=device),
        "bigbird": lambda: make.from_bigbird(n[0], n[1], n[2], 1, length, device=device),
    }[kind]()


def dense_mask(encoder: seqfuse.Encoder, mask: str, length: int) -> torch.Tensor:
    """bool [N, N] of a mask, by seqfuse.BlockMask."""
    return block_mask_of(mask, length).to_dense()[0].to(encoder.device)


def peers_mask(encoder: seqfuse.Encoder, mask: str, lengths: list[int], length: int) -> torch.Tensor | None:
    """bool [1 or B, 1, 1 or N, N]: that of each sequence's own length; None: all see all."""
    full = all(tokens == length for tokens in lengths)
    if mask == "none":
        columns = torch.arange(length, device=encoder.device)
        return None if full else columns < torch.tensor(lengths, device=encoder.device)[:, None, None, None]
    if full:
        return dense_mask(encoder, mask, length)[None, None]
    allowed = torch.zeros(len(lengths), 1, length, length, dtype=torch.bool, device=encoder.device)
    for b, tokens in enumerate(lengths):
        allowed[b, 0, :tokens, :tokens] = dense_mask(encoder, mask, tokens)
        allowed[b, 0, tokens:, 0] = True  # padding must see something, or it becomes NaN and spreads
    return allowed


def attend_with(allowed: torch.Tensor | None):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def in_graph(function, warm_up: int = 3):
    """A function that replays what function() does; its result is function's tensor."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()

    def replay():
        graph.replay()
        return result

    return replay


def flex_mask(allowed: torch.Tensor, length: int):
    from torch.nn.attention.flex_attention import create_block_mask  # noqa: PLC0415

    table = allowed.expand(allowed.shape[0], 1, length, length)
    batch = table.shape[0] if table.shape[0] > 1 else None
    return create_block_mask(
        lambda b, h, q, k: table[b if batch else 0, 0, q, k], batch, None, length, length, device=allowed.device
    )


class Models:
    """A BERT of random weights: ours, plain PyTorch's and Hugging Face's. Compiled ones are kept, for other masks."""

    def __init__(self, shape: dict, positions: int, folder: pathlib.Path, device: str) -> None:
        self.shape = shape
        self.device, self.dtype = device, torch.float32 if device == "cpu" else torch.float16
        exact = torch.float64 if device == "cpu" else torch.float32
        plain = make_model(shape, positions)
        write_checkpoint(plain, shape, positions, folder, self.dtype)
        self.folder = folder
        self.encoder = seqfuse.Encoder.from_pretrained(folder, dtype=self.dtype, device=device)
        self.plain = copy.deepcopy(plain).to(device, self.dtype)
        # Of the rounded weights, which all the others have.
        self.exact = copy.deepcopy(self.plain).to(exact)
        self.hugging_face = self._hugging_face(folder)
        self.forget_compiled()

    def _hugging_face(self, folder: pathlib.Path):
        try:
            from transformers import BertModel  # noqa: PLC0415
        except ImportError:
            return None
        model = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=self.dtype)
        return model.eval().to(self.device)

    def forget_compiled(self) -> None:
        """Compiled ones take masks as arguments, so that other masks of the same shape compile nothing."""
        from torch.nn.attention.flex_attention import flex_attention  # noqa: PLC0415

        torch._dynamo.reset()
        plain = self.plain
        self.compiled = torch.compile(lambda ids, allowed: plain(ids, attend_with(allowed)))
        self.with_flex = torch.compile(
            lambda ids, blocks: plain(ids, lambda q, k, v: flex_attention(q, k, v, block_mask=blocks))
        )
        self.compiled_hugging_face = torch.compile(self.hugging_face) if self.hugging_face else None
        self.autotuned = Autotuned(plain)


def plain_ways(models: Models, ids, allowed) -> dict:
    """Functions without arguments that return states [B, N, H]."""
    attend = attend_with(allowed)
    ways = {"eager": lambda: models.plain(ids, attend), "compiled": lambda: models.compiled(ids, allowed)}
    if models.device == "cpu":
        return ways
    ways["eager graph"] = ways["eager"]
    ways["compiled graph"] = ways["compiled"]
    if allowed is not None:
        blocks = flex_mask(allowed, ids.shape[1])
        ways["flex graph"] = lambda: models.with_flex(ids, blocks)
    return ways


def hugging_face_ways(models: Models, ids, mask) -> dict:
    """mask: bool [B, N], or None. Without a mask of its own: transformers has none of those."""
    if models.hugging_face is None:
        return {}
    given = {} if mask is None else {"attention_mask": mask.long()}
    return {
        "Hugging Face eager": lambda: models.hugging_face(ids, **given).last_hidden_state,
        "Hugging Face compiled": lambda: models.compiled_hugging_face(ids, **given).last_hidden_state,
    }
