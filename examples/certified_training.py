"""Trains a small encoder classifier twice, normally and with interval bounds, for `seqfuse certify`. In plain PyTorch.

python examples/certified_training.py FOLDER [--task majority] [--radius 0.05] [--steps 1000]
seqfuse certify FOLDER/normal    --ids-file FOLDER/test.txt --positions all --norm linf --search
seqfuse certify FOLDER/certified --ids-file FOLDER/test.txt --positions all --norm linf --search

A sentence is token 0 and then `--length` tokens 1 or 2. Its class is the more frequent of the two (majority), or
whether the number of 2s is odd (parity). Both models have BERT's layout with layer norms that do not divide
("layer_norm_type": "no_division"), since bounds of a division are loose.

Certified training (IBP, after Gowal et al. 2018): the loss is the cross-entropy of the worst logits that intervals
allow while each embedding moves within an L-infinity ball, whose radius grows from 0 during the first two thirds of the
steps; part of the loss is that without movement.
"""

import argparse
import itertools
import json
import math
import pathlib

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HIDDEN, HEADS, INNER, LAYERS, VOCABULARY = 16, 2, 32, 1, 3


class NormWithoutDivision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(HIDDEN)), nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) * self.weight + self.bias


class Layer(nn.Module):
    """With Hugging Face's names of weights."""

    def __init__(self) -> None:
        super().__init__()
        attention = {name: nn.Linear(HIDDEN, HIDDEN) for name in ("query", "key", "value")}
        output = {"dense": nn.Linear(HIDDEN, HIDDEN), "LayerNorm": NormWithoutDivision()}
        self.attention = nn.ModuleDict({"self": nn.ModuleDict(attention), "output": nn.ModuleDict(output)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(HIDDEN, INNER)})
        self.output = nn.ModuleDict({"dense": nn.Linear(INNER, HIDDEN), "LayerNorm": NormWithoutDivision()})


class Classifier(nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        tables = {"word": VOCABULARY, "position": length, "token_type": 2}
        embeddings = {f"{name}_embeddings": nn.Embedding(rows, HIDDEN) for name, rows in tables.items()}
        self.bert = nn.ModuleDict(
            {
                "embeddings": nn.ModuleDict({**embeddings, "LayerNorm": NormWithoutDivision()}),
                "encoder": nn.ModuleDict({"layer": nn.ModuleList(Layer() for _ in range(LAYERS))}),
                "pooler": nn.ModuleDict({"dense": nn.Linear(HIDDEN, HIDDEN)}),
            }
        )
        self.classifier = nn.Linear(HIDDEN, 2)

    def embed(self, ids: Tensor) -> Tensor:
        parts = self.bert["embeddings"]
        rows = parts["word_embeddings"](ids) + parts["position_embeddings"].weight[: ids.shape[1]]
        return rows + parts["token_type_embeddings"].weight[0]

    def bounds(self, ids: Tensor, radius: float) -> tuple[Tensor, Tensor]:
        """Logits [B, 2] in the middle of what intervals allow, and how far their difference may be from there."""
        mid = self.embed(ids)
        mid, rad = through_norm(self.bert["embeddings"]["LayerNorm"], mid, torch.full_like(mid, radius))
        for layer in self.bert["encoder"]["layer"]:
            mid, rad = through_layer(layer, mid, rad)
        mid, rad = through_linear(self.bert["pooler"]["dense"], mid[:, 0], rad[:, 0])
        mid, rad = through_monotone(torch.tanh, mid, rad)
        # The difference of the logits, and not each alone: its interval is smaller.
        difference = self.classifier.weight[1] - self.classifier.weight[0]
        return self.classifier(mid), rad @ difference.abs()


def through_linear(linear: nn.Linear, mid: Tensor, rad: Tensor) -> tuple[Tensor, Tensor]:
    return linear(mid), F.linear(rad, linear.weight.abs())


def through_norm(norm: NormWithoutDivision, mid: Tensor, rad: Tensor) -> tuple[Tensor, Tensor]:
    grown = rad * (1 - 2 / HIDDEN) + rad.mean(-1, keepdim=True)
    return norm(mid), grown * norm.weight.abs()


def through_monotone(function, mid: Tensor, rad: Tensor) -> tuple[Tensor, Tensor]:
    low, high = function(mid - rad), function(mid + rad)
    return (low + high) / 2, (high - low) / 2


def through_product(x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    size = y[0].abs()
    return x[0] @ y[0], x[0].abs() @ y[1] + x[1] @ (size + y[1])


def through_softmax(mid: Tensor, rad: Tensor) -> tuple[Tensor, Tensor]:
    top = (mid + rad).amax(-1, keepdim=True).detach()
    low, high = (mid - rad - top).exp(), (mid + rad - top).exp()
    least = low / (low + high.sum(-1, keepdim=True) - high)
    most = high / (high + low.sum(-1, keepdim=True) - low)
    return (least + most) / 2, (most - least) / 2


def through_layer(layer: Layer, mid: Tensor, rad: Tensor) -> tuple[Tensor, Tensor]:
    def by_head(name: str) -> tuple[Tensor, Tensor]:
        found = through_linear(layer.attention["self"][name], mid, rad)
        return tuple(x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in found)

    q, k, v = (by_head(name) for name in ("query", "key", "value"))
    scale = math.sqrt(HIDDEN // HEADS)
    scores = through_product(q, tuple(x.transpose(-1, -2) for x in k))
    context = through_product(through_softmax(scores[0] / scale, scores[1] / scale), v)
    context = (x.transpose(1, 2).flatten(-2) for x in context)
    attended = through_linear(layer.attention["output"]["dense"], *context)
    a = through_norm(layer.attention["output"]["LayerNorm"], attended[0] + mid, attended[1] + rad)
    inner = through_monotone(torch.relu, *through_linear(layer.intermediate["dense"], *a))
    out = through_linear(layer.output["dense"], *inner)
    return through_norm(layer.output["LayerNorm"], out[0] + a[0], out[1] + a[1])


def all_sentences(length: int, task: str) -> tuple[Tensor, Tensor]:
    """Every sentence, in random order, and its class."""
    tokens = torch.tensor(list(itertools.product((1, 2), repeat=length)))
    twos = (tokens == 2).sum(1)
    classes = twos % 2 if task == "parity" else (2 * twos > length).long()
    order = torch.randperm(len(tokens))
    return F.pad(tokens, (1, 0))[order], classes[order]


def train(sentences: Tensor, classes: Tensor, radius: float, steps: int) -> Classifier:
    """radius 0: normally."""
    torch.manual_seed(1)
    model = Classifier(sentences.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        chosen = torch.randint(len(sentences), (128,))
        ids, target = sentences[chosen], classes[chosen]
        share = min(1.0, max(0.0, (step / steps - 0.1) / 0.55))
        logits, _ = model.bounds(ids, 0.0)
        loss = F.cross_entropy(logits, target)
        if radius > 0:
            middle, moves = model.bounds(ids, radius * share)
            worst = middle[:, 1] - middle[:, 0] - (2 * target - 1) * moves
            certified = F.binary_cross_entropy_with_logits(worst, target.to(worst.dtype))
            loss = (1 - share / 2) * loss + share / 2 * certified
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


@torch.no_grad()
def report(model: Classifier, sentences: Tensor, classes: Tensor, radius: float) -> str:
    logits, _ = model.bounds(sentences, 0.0)
    middle, moves = model.bounds(sentences, radius)
    sign = 2 * classes - 1
    right = (logits.argmax(1) == classes).double().mean()
    certified = ((middle[:, 1] - middle[:, 0]) * sign > moves).double().mean()
    return f"accuracy {right:.3f}, certified by intervals at {radius:g}: {certified:.3f}"


def save(model: Classifier, folder: pathlib.Path) -> None:
    """config.json and model.safetensors, as Hugging Face names them."""
    folder.mkdir(parents=True, exist_ok=True)
    header, chunks, at = {}, [], 0
    for name, tensor in model.state_dict().items():
        raw = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        chunks.append(raw)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *chunks]))
    config = {
        "model_type": "bert", "hidden_act": "relu", "layer_norm_type": "no_division", "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
        "intermediate_size": INNER, "type_vocab_size": 2,
        "max_position_embeddings": model.bert["embeddings"]["position_embeddings"].num_embeddings,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--task", default="majority", choices=["majority", "parity"])
    parser.add_argument("--length", type=int, default=7)
    parser.add_argument("--radius", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--test", type=int, default=8, help="sentences for seqfuse certify, not trained on")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the model is so small that more threads would wait for each other
    torch.manual_seed(0)
    sentences, classes = all_sentences(args.length, args.task)
    for name, radius in (("normal", 0.0), ("certified", args.radius)):
        model = train(sentences[args.test :], classes[args.test :], radius, args.steps)
        save(model, args.folder / name)
        print(f"{name}: {report(model, sentences, classes, args.radius)}")
    lines = [",".join(map(str, ids)) for ids in sentences[: args.test].tolist()]
    (args.folder / "test.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
