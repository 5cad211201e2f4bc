"""BERT in plain PyTorch, as Hugging Face's computes it, and its weights as a checkpoint for seqfuse."""

import json
import pathlib

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SHAPES = {  # tiny: to try the script
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
}
VOCABULARY = 1000  # rows are looked up, so their number costs no time


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.attended, self.norm1 = nn.Linear(hidden, hidden), nn.LayerNorm(hidden, eps=1e-12)
        self.intermediate, self.output = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-12)

    def forward(self, h: Tensor, attend) -> Tensor:
        shape = (*h.shape[:2], self.heads, -1)
        q, k, v = (part(h).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        context = attend(q, k, v).transpose(1, 2).reshape(h.shape)
        a = self.norm1(self.attended(context) + h)
        return self.norm2(self.output(F.gelu(self.intermediate(a))) + a)


class PlainBert(nn.Module):
    def __init__(self, shape: dict, positions: int) -> None:
        super().__init__()
        hidden = shape["hidden_size"]
        self.words, self.types = nn.Embedding(VOCABULARY, hidden), nn.Embedding(2, hidden)
        self.positions, self.norm = nn.Embedding(positions, hidden), nn.LayerNorm(hidden, eps=1e-12)
        self.layers = nn.ModuleList(
            Layer(hidden, shape["num_attention_heads"], shape["intermediate_size"])
            for _ in range(shape["num_hidden_layers"])
        )

    def forward(self, ids: Tensor, attend) -> Tensor:
        h = self.words(ids) + self.types.weight[0] + self.positions.weight[: ids.shape[1]]
        h = self.norm(h)
        for layer in self.layers:
            h = layer(h, attend)
        return h


def make_model(shape: dict, positions: int, seed: int = 1) -> PlainBert:
    """Random weights of the size that BERT's training begins with, float32 on the CPU."""
    torch.manual_seed(seed)
    model = PlainBert(shape, positions).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            nn.init.normal_(parameter, std=0.02)
    return model


def write_safetensors(file: pathlib.Path, tensors: dict[str, torch.Tensor]) -> None:
    kinds = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    header, at, chunks = {}, 0, []
    for name, tensor in tensors.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        chunks.append(raw)
    text = json.dumps(header).encode()
    file.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *chunks]))


def write_checkpoint(model: PlainBert, shape: dict, positions: int, folder: pathlib.Path, dtype: torch.dtype) -> None:
    names = {
        "words.weight": "embeddings.word_embeddings.weight",
        "types.weight": "embeddings.token_type_embeddings.weight",
        "positions.weight": "embeddings.position_embeddings.weight",
        "norm": "embeddings.LayerNorm",
        "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
        "attended": "attention.output.dense", "norm1": "attention.output.LayerNorm",
        "intermediate": "intermediate.dense", "output": "output.dense", "norm2": "output.LayerNorm",
    }  # fmt: skip
    tensors = {}
    for name, parameter in model.named_parameters():
        if name in names:
            full = names[name]
        elif name.startswith("layers."):
            _, index, part, kind = name.split(".")
            full = f"encoder.layer.{index}.{names[part]}.{kind}"
        else:
            part, kind = name.split(".")
            full = f"{names[part]}.{kind}"
        tensors[full] = parameter.to(dtype)
    write_safetensors(folder / "model.safetensors", tensors)
    config = {
        "model_type": "bert", "hidden_act": "gelu", "vocab_size": VOCABULARY, "type_vocab_size": 2,
        "max_position_embeddings": positions, "layer_norm_eps": 1e-12, **shape,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
