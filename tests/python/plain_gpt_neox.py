"""GPT-NeoX in plain PyTorch, step by step in the order in which transformers computes it."""

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
}


def rotary(config: dict, tokens: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines [tokens, dims], rounded from those of float32 products; in float64 (of float32 frequencies)."""
    wide = torch.promote_types(like.dtype, torch.float)
    dims = int(config["hidden_size"] // config["num_attention_heads"] * config["rotary_pct"])
    exponents = torch.arange(0, dims, 2, dtype=torch.int64).to(torch.float) / dims
    frequencies = (1.0 / (config["rotary_emb_base"] ** exponents)).to(like.device)
    angles = torch.arange(tokens, device=like.device).to(wide)[:, None] * frequencies[None].to(wide)
    angles = torch.cat([angles, angles], -1)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    dims = cos.shape[-1]
    turning, passing = x[..., :dims], x[..., dims:]
    first, second = turning[..., : dims // 2], turning[..., dims // 2 :]
    return torch.cat([turning * cos + torch.cat([-second, first], -1) * sin, passing], -1)


def attention(config: dict, weights: dict[str, Tensor], name: str, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    batch, tokens, hidden = x.shape
    heads = config["num_attention_heads"]
    qkv = F.linear(x, weights[name + "query_key_value.weight"], weights[name + "query_key_value.bias"])
    q, k, v = qkv.view(batch, tokens, heads, 3 * hidden // heads).transpose(1, 2).chunk(3, dim=-1)
    context = F.scaled_dot_product_attention(
        rotated(q, *angles), rotated(k, *angles), v, is_causal=tokens > 1, scale=(hidden // heads) ** -0.5
    )
    context = context.transpose(1, 2).contiguous().reshape(batch, tokens, hidden)
    return F.linear(context, weights[name + "dense.weight"], weights[name + "dense.bias"])


@torch.no_grad()
def hidden_states(config: dict, weights: dict[str, Tensor], ids: list[int]) -> list[Tensor]:
    """[tokens, H] each: before every layer, then after the final norm. weights: by their names in a checkpoint."""

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(
            x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], config["layer_norm_eps"]
        )

    def mlp(x: Tensor, name: str) -> Tensor:
        inner = F.linear(x, weights[name + "dense_h_to_4h.weight"], weights[name + "dense_h_to_4h.bias"])
        inner = ACTIVATIONS[config["hidden_act"]](inner)
        return F.linear(inner, weights[name + "dense_4h_to_h.weight"], weights[name + "dense_4h_to_h.bias"])

    table = weights["gpt_neox.embed_in.weight"]
    h = F.embedding(torch.tensor([ids], device=table.device), table)
    angles = rotary(config, len(ids), h)
    states = []
    for layer in range(config["num_hidden_layers"]):
        states.append(h[0])
        name = f"gpt_neox.layers.{layer}."
        attended = attention(config, weights, name + "attention.", norm(h, name + "input_layernorm"), angles)
        if config["use_parallel_residual"]:
            h = mlp(norm(h, name + "post_attention_layernorm"), name + "mlp.") + attended + h
        else:
            attended = attended + h
            h = mlp(norm(attended, name + "post_attention_layernorm"), name + "mlp.") + attended
    return [*states, norm(h, "gpt_neox.final_layer_norm")[0]]
