"""A small random BERT as a folder of Hugging Face, written without transformers."""

import json
import pathlib

import torch

from tiny_gpt_neox import write_safetensors

VOCABULARY, POSITIONS = 50, 150
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def config(**changes) -> dict:
    return {
        "model_type": "bert", "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "type_vocab_size": 2,
        "hidden_act": "gelu", "layer_norm_eps": 1e-12, **SIZES, **changes,
    }  # fmt: skip


def make_tensors() -> dict[str, torch.Tensor]:
    hidden, inner = SIZES["hidden_size"], SIZES["intermediate_size"]
    generator = torch.Generator().manual_seed(5)
    shapes = {"embeddings.LayerNorm.weight": (hidden,), "embeddings.LayerNorm.bias": (hidden,)}
    for name, rows in (("word", VOCABULARY), ("position", POSITIONS), ("token_type", 2)):
        shapes[f"embeddings.{name}_embeddings.weight"] = (rows, hidden)
    for layer in range(SIZES["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        linear = {f"attention.self.{part}": (hidden, hidden) for part in ("query", "key", "value")}
        linear |= {
            "attention.output.dense": (hidden, hidden), "intermediate.dense": (inner, hidden),
            "output.dense": (hidden, inner),
        }  # fmt: skip
        for part, shape in linear.items():
            shapes[f"{name}.{part}.weight"], shapes[f"{name}.{part}.bias"] = shape, shape[:1]
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{name}.{norm}.weight"] = shapes[f"{name}.{norm}.bias"] = (hidden,)
    tensors = {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {name: tensor + 1 if name.endswith("LayerNorm.weight") else tensor for name, tensor in tensors.items()}


def write_bert(folder: pathlib.Path, **changes) -> pathlib.Path:
    """changes: of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(**changes)))
    write_safetensors(folder / "model.safetensors", {f"bert.{name}": t for name, t in make_tensors().items()})
    return folder
