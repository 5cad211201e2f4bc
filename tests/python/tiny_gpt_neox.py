"""A small random GPT-NeoX as a folder of Hugging Face, written without transformers."""

import json
import pathlib

import torch

VOCABULARY = 300
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def write_model(folder: pathlib.Path, parallel: bool = True, **changes) -> pathlib.Path:
    """changes: of config.json."""
    config = {
        "model_type": "gpt_neox", "vocab_size": VOCABULARY, "max_position_embeddings": 64, "hidden_act": "gelu",
        "use_parallel_residual": parallel, "rotary_pct": 0.25, "rotary_emb_base": 10000, "layer_norm_eps": 1e-5,
        "tie_word_embeddings": False, "eos_token_id": 0, "bos_token_id": 0, **SIZES, **changes,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", make_tensors())
    return folder


def make_tensors() -> dict[str, torch.Tensor]:
    hidden, inner = SIZES["hidden_size"], SIZES["intermediate_size"]
    generator = torch.Generator().manual_seed(5)
    shapes = {"gpt_neox.embed_in.weight": (VOCABULARY, hidden), "embed_out.weight": (VOCABULARY, hidden)}
    linear = {
        "attention.query_key_value": (3 * hidden, hidden), "attention.dense": (hidden, hidden),
        "mlp.dense_h_to_4h": (inner, hidden), "mlp.dense_4h_to_h": (hidden, inner),
    }  # fmt: skip
    for layer in range(SIZES["num_hidden_layers"]):
        for name, shape in linear.items():
            shapes[f"gpt_neox.layers.{layer}.{name}.weight"] = shape
            shapes[f"gpt_neox.layers.{layer}.{name}.bias"] = shape[:1]
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"gpt_neox.layers.{layer}.{norm}.weight"] = shapes[f"gpt_neox.layers.{layer}.{norm}.bias"] = (
                hidden,
            )
    shapes["gpt_neox.final_layer_norm.weight"] = shapes["gpt_neox.final_layer_norm.bias"] = (hidden,)
    tensors = {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {name: 1 + t if name.endswith("norm.weight") else t for name, t in tensors.items()}


def write_safetensors(file: pathlib.Path, tensors: dict[str, torch.Tensor]) -> None:
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
