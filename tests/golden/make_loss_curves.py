#!/usr/bin/env python3
"""Writes loss_curves.json: the losses of 50 training steps of each model, from an independent program.

Padded PyTorch in float64 with torch.optim; shares no code with seqfuse. Random numbers (dropout, negatives) come from
Philox4x32-10 with seqfuse's counters, initial weights from a linear congruential generator that the test repeats.
loss_curves_test.cpp trains the same models with the trainer and compares.

    python3 tests/golden/make_loss_curves.py
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)

STEPS, BATCH, SEED = 50, 8, 1234
LAYERS, D, H, HEAD, EPS = 2, 8, 2, 6, 1e-6
MAX_HISTORY, MAX_CANDIDATES = 8, 2
NUM_ITEMS, NUM_ACTIONS, NUM_GROUPS, POSITIONS, TIME_BUCKETS = 12, 2, 5, 32, 128
DROPOUT, TEMPERATURE, NEGATIVES = 0.1, 0.05, 5
LEARNING_RATE, WARMUP, WEIGHT_DECAY, MAX_NORM = 0.01, 5, 0.01, 8.0
MASK32 = 0xFFFFFFFF


# ---- random numbers


def philox(seed, stream, counter):
    c = [counter & MASK32, counter >> 32, stream & MASK32, stream >> 32]
    k0, k1 = seed & MASK32, seed >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & MASK32, (p0 >> 32) ^ c[3] ^ k1, p0 & MASK32]
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c


def words(seed, stream, count):
    """Element e takes word e % 64 // 16 of counter 16 (e // 64) + e % 16."""
    blocks = [philox(seed, stream, counter) for counter in range(16 * ((count + 63) // 64))]
    return [blocks[16 * (e // 64) + e % 16][e % 64 // 16] for e in range(count)]


def site_seed(step, site):
    high, low = philox(SEED, (0x6D6F64656C << 24) + site, step)[:2]
    return high << 32 | low


def dropout_factors(count, seed):
    threshold = round(DROPOUT * 2**32)
    drawn = words(seed, 0x64726F706F757400, count)
    return torch.tensor([0.0 if word < threshold else 1 / (1 - DROPOUT) for word in drawn])


def dropout(x, valid, seed):
    """Factors are numbered over the jagged rows: the valid rows of the padded x, in order."""
    factors = torch.ones_like(x)
    factors[valid] = dropout_factors(int(valid.sum()) * x.shape[-1], seed).view(-1, x.shape[-1])
    return x * factors


def draw_negatives(count, seed):
    return torch.tensor([1 + (word * NUM_ITEMS >> 32) for word in words(seed, 0x73616D706C657300, count)])


class Source:
    """Numbers in [-1, 1): s = a s + c mod 2^64, its upper 53 bits."""

    def __init__(self):
        self.state = 1

    def tensor(self, shape):
        values = []
        for _ in range(math.prod(shape)):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
            values.append((self.state >> 11) * 2.0**-52 - 1)
        return torch.tensor(values).view(shape)


# ---- data


def make_users():
    """30 users whose items follow a ring of 12, sometimes skipping one."""
    users = []
    for u in range(30):
        n = 5 + u % 9
        users.append(
            {
                "group": u % 4 + 1,
                "items": [(5 * u + i + (i * i + u) % 3 // 2) % NUM_ITEMS + 1 for i in range(n)],
                "actions": [int((u + i) % 3 == 0) for i in range(n)],
                "timestamps": [1000 + 50 * i * i + 7 * u for i in range(n)],
            }
        )
    return users


def training_windows(users, candidates):
    """Each user's newest events before the test events, as many as fit; retrieval predicts within them."""
    windows = []
    for user in users:
        end = len(user["items"]) - max(1, candidates)
        begin = max(0, end - MAX_HISTORY - max(1, candidates))
        windows.append({name: value[begin:end] if isinstance(value, list) else value for name, value in user.items()})
    return windows


def padded(rows, dtype=torch.long):
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=dtype)


# ---- models


def parameter_shapes(architecture, ranking):
    inner, scaling = H * HEAD, MAX_HISTORY + 11
    hstu = architecture == "hstu"
    shapes = {"tables.item": [NUM_ITEMS + 1, D]}
    if hstu:
        shapes |= {"tables.action": [NUM_ACTIONS, D], "tables.group": [NUM_GROUPS, D]}
    shapes["encoder.position"] = [POSITIONS if hstu else scaling, D]
    for i in range(LAYERS):
        layer = {"uvqk_weight": [D, 4 * inner], "output_weight": [inner, D]}
        if hstu:
            layer |= {"input_norm_weight": [D], "input_norm_bias": [D], "uvqk_bias": [4 * inner]}
            layer |= {"output_norm_weight": [inner], "output_norm_bias": [inner]}
        else:
            layer |= {"output_bias": [D], "position_bias": [2 * scaling - 1], "time_bias": [TIME_BUCKETS + 1]}
        shapes |= {f"encoder.layers.{i}.{name}": shape for name, shape in layer.items()}
    if ranking:
        shapes |= {"head.0.weight": [6, D], "head.0.bias": [6], "head.2.weight": [1, 6], "head.2.bias": [1]}
    return shapes


def initial_weights(shapes):
    source = Source()
    weights = {}
    for name, shape in shapes.items():
        values = source.tensor(shape)
        weights[name] = (1 + 0.1 * values if name.endswith("norm_weight") else 0.3 * values).requires_grad_()
    return weights


def layer(w, index, x, mask, bias, alpha, scaling, valid, step):
    """x [B, n, D], mask [B, n, n], bias [B, n, n] or 0."""
    name = f"encoder.layers.{index}."
    batch, n = x.shape[:2]

    def norm(values, which):
        weight, bias = w.get(f"{name}{which}_weight"), w.get(f"{name}{which}_bias")
        return F.layer_norm(values, values.shape[-1:], weight, bias, EPS)

    uvqk = F.silu(norm(x, "input_norm") @ w[name + "uvqk_weight"] + w.get(name + "uvqk_bias", 0))
    u, v, q, k = uvqk.split(H * HEAD, -1)
    v, q, k = (part.view(batch, n, H, HEAD).transpose(1, 2) for part in (v, q, k))
    scores = alpha * q @ k.transpose(-1, -2) + bias
    o = (F.silu(scores) / scaling * mask.unsqueeze(1)) @ v
    o = o.transpose(1, 2).reshape(batch, n, H * HEAD)
    y = dropout(u * norm(o, "output_norm"), valid, site_seed(step, 16 + index))
    return x + y @ w[name + "output_weight"] + w.get(name + "output_bias", 0)


def normalize(x):
    return F.normalize(x, dim=-1, eps=1e-6)


def hstu_states(w, windows, candidates, step):
    """Tokens of a window: its group, item and action of each event of history, the candidates' items."""
    rows, events = [], []
    for window in windows:
        history = len(window["items"]) - max(1, candidates)
        tokens = [w["tables.group"][window["group"]]]
        for i in range(history):
            tokens += [w["tables.item"][window["items"][i]], w["tables.action"][window["actions"][i]]]
        tokens += [w["tables.item"][item] for item in window["items"][history : history + candidates]]
        rows.append(torch.stack(tokens))
        events.append(history)
    lengths = torch.tensor([len(row) for row in rows])
    n = int(lengths.max())
    x = torch.stack([F.pad(row, (0, 0, 0, n - len(row))) for row in rows]) * math.sqrt(D)
    i = torch.arange(n)
    valid = i < lengths.unsqueeze(1)
    first_target = (lengths - candidates).unsqueeze(1)  # all candidates have the position of the first
    x = x + w["encoder.position"][torch.minimum(i, first_target)]
    causal = i.unsqueeze(0) <= i.unsqueeze(1)
    is_history = (i < first_target).unsqueeze(1)  # as key
    mask = (causal & is_history) | torch.eye(n, dtype=torch.bool)  # a candidate sees no other one
    if candidates:  # the context sees all of the history
        mask = mask | (is_history & (i == 0).view(1, n, 1))
    scaling = 1 + 2 * (MAX_HISTORY + candidates)
    x = dropout(x, valid, site_seed(step, 1))
    for index in range(LAYERS):
        x = layer(w, index, x, mask.to(x.dtype), 0, HEAD**-0.5, scaling, valid, step)
    if candidates:
        return torch.cat([x[b, length - candidates : length] for b, length in enumerate(lengths)])
    return torch.cat([x[b, 1 : 1 + 2 * count : 2] for b, count in enumerate(events)])


def hstu_research_states(w, windows, step):
    ids = padded([window["items"][:-1] for window in windows])
    times = padded([window["timestamps"][:-1] for window in windows])
    following = padded([window["timestamps"][1:] for window in windows])
    n, scaling = ids.shape[1], MAX_HISTORY + 11
    valid = ids > 0
    x = w["tables.item"][ids] * math.sqrt(D) + w["encoder.position"][:n]
    seconds = (following.unsqueeze(2) - times.unsqueeze(1)).abs().clamp(min=1)
    bucket = (seconds.double().log() / 0.301).floor().long().clamp(0, TIME_BUCKETS)
    i = torch.arange(n)
    distance = scaling - 1 + i.unsqueeze(0) - i.unsqueeze(1)
    mask = torch.ones(n, n).tril().expand(len(windows), n, n)
    x = dropout(x, valid, site_seed(step, 1))
    for index in range(LAYERS):
        name = f"encoder.layers.{index}."
        bias = (w[name + "position_bias"][distance] + w[name + "time_bias"][bucket]).unsqueeze(1)
        x = layer(w, index, x, mask, bias, 1.0, scaling, valid, step)
    return x[valid]


def retrieval_loss(w, windows, architecture, step):
    states = hstu_states(w, windows, 0, step) if architecture == "hstu" else hstu_research_states(w, windows, step)
    states = normalize(states)
    rows = normalize(w["tables.item"])
    targets = torch.tensor([item for window in windows for item in window["items"][1:]])
    negatives = draw_negatives(len(targets) * NEGATIVES, site_seed(step, 0)).view(-1, NEGATIVES)
    positive = (states * rows[targets]).sum(-1, keepdim=True)
    negative = torch.einsum("pd,pkd->pk", states, rows[negatives]) / TEMPERATURE
    negative = negative.masked_fill(negatives == targets.unsqueeze(1), -5e4)
    return -torch.cat([positive / TEMPERATURE, negative], 1).log_softmax(1)[:, 0].mean()


def ranking_loss(w, windows, step):
    states = normalize(hstu_states(w, windows, MAX_CANDIDATES, step))
    hidden = F.relu(states @ w["head.0.weight"].T + w["head.0.bias"])
    logits = (hidden @ w["head.2.weight"].T + w["head.2.bias"]).squeeze(1)
    labels = [action for window in windows for action in window["actions"][-MAX_CANDIDATES:]]
    return F.binary_cross_entropy_with_logits(logits, torch.tensor(labels, dtype=logits.dtype))


# ---- training


def learning_rate(step):
    """Warm-up, then a cosine to 0."""
    if step < WARMUP:
        return LEARNING_RATE * (step + 1) / WARMUP
    return LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


def train(users, architecture, ranking):
    shapes = parameter_shapes(architecture, ranking)
    w = initial_weights(shapes)
    tables = [weight for name, weight in w.items() if name.startswith("tables.")]
    others = [weight for name, weight in w.items() if not name.startswith("tables.")]
    make = torch.optim.AdamW if ranking else torch.optim.Adam
    groups = [{"params": tables, "weight_decay": 0.0}, {"params": others, "weight_decay": WEIGHT_DECAY}]
    optimizer = make(groups, eps=1e-8)
    windows = training_windows(users, MAX_CANDIDATES if ranking else 0)
    per_epoch = (len(windows) + BATCH - 1) // BATCH
    losses, clipped = [], 0
    for step in range(STEPS):
        begin = step % per_epoch * BATCH
        batch = windows[begin : begin + BATCH]
        loss = ranking_loss(w, batch, step) if ranking else retrieval_loss(w, batch, architecture, step)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        norm = math.sqrt(sum(float(weight.grad.square().sum()) for weight in w.values()))
        if norm > MAX_NORM:
            clipped += 1
            for weight in w.values():
                weight.grad.mul_(MAX_NORM / norm)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        losses.append(loss.item())
    name = f"{'ranking' if ranking else 'retrieval'}_{architecture}"
    print(f"{name}: {losses[0]:.4f} to {losses[-1]:.4f}, {clipped} of {STEPS} steps clipped")
    return name, {"parameters": [[name, shape] for name, shape in shapes.items()], "losses": losses}


def main():
    users = make_users()
    golden = {"users": users, "models": {}}
    for architecture, ranking in (("hstu", False), ("hstu_research", False), ("hstu", True)):
        name, curve = train(users, architecture, ranking)
        golden["models"][name] = curve
    pathlib.Path(__file__).with_name("loss_curves.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
