#!/usr/bin/env python3
"""The published public HSTU experiment in plain, padded PyTorch: quality reference and speed baseline.

    hstu_torch.py DATASET --epochs 101 --seed 1 [--compile]              train and print ranking metrics
    hstu_torch.py DATASET --max-steps 8 --warm-up 3 [--compile] --json   only measure the training speed

DATASET is a directory made by `seqfuse preprocess`. The last event of a user is the test target, the others
train. Defaults are those of configs/ml_1m_hstu.gin.
"""

import argparse
import json
import math
import pathlib
import time

import pyarrow.ipc
import torch
import torch.nn.functional as F

TIME_BUCKETS = 128


def load_users(dataset: str) -> list[tuple[list[int], list[int]]]:
    """Items and timestamps of each user, oldest first."""
    users = []
    for shard in sorted(pathlib.Path(dataset, "sequences").glob("*.arrow")):
        table = pyarrow.ipc.open_file(shard).read_all()
        users += zip(table["items"].to_pylist(), table["timestamps"].to_pylist())
    return users


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int, head_dim: int, longest: int, dropout: float):
        super().__init__()
        self.heads, self.head_dim, self.longest, self.dropout = heads, head_dim, longest, dropout
        self.uvqk = torch.nn.Parameter(torch.empty(width, 4 * heads * head_dim).normal_(0, 0.02))
        self.out = torch.nn.Linear(heads * head_dim, width)
        torch.nn.init.xavier_uniform_(self.out.weight)
        self.position_bias = torch.nn.Parameter(torch.empty(2 * longest - 1).normal_(0, 0.02))
        self.time_bias = torch.nn.Parameter(torch.empty(TIME_BUCKETS + 1).normal_(0, 0.02))

    def forward(self, x, bucket, relative, mask):  # x [B, n, D]; bucket [B, n, n]; relative, mask [n, n]
        batch, n, width = x.shape
        inner = self.heads * self.head_dim
        u, v, q, k = F.silu(F.layer_norm(x, (width,), eps=1e-6) @ self.uvqk).split(inner, -1)
        q, k, v = (t.view(batch, n, self.heads, self.head_dim).transpose(1, 2) for t in (q, k, v))
        s = q @ k.transpose(-1, -2) + (self.position_bias[relative] + self.time_bias[bucket]).unsqueeze(1)
        a = F.silu(s) / self.longest * mask
        o = (a @ v).transpose(1, 2).reshape(batch, n, inner)
        y = u * F.layer_norm(o, (inner,), eps=1e-6)
        return self.out(F.dropout(y, self.dropout, self.training)) + x


class Model(torch.nn.Module):
    """Rows 1..num_items of `item` are items, row 0 is padding."""

    def __init__(self, num_items, width=50, blocks=2, heads=1, head_dim=50, max_len=200, dropout=0.2):
        super().__init__()
        self.width, self.longest, self.dropout, self.num_items = width, max_len + 11, dropout, num_items
        self.item = torch.nn.Parameter(torch.nn.init.trunc_normal_(torch.empty(num_items + 1, width), std=0.02))
        position = torch.empty(self.longest, width)
        self.position = torch.nn.Parameter(torch.nn.init.trunc_normal_(position, std=math.sqrt(1 / width)))
        self.blocks = torch.nn.ModuleList(Block(width, heads, head_dim, self.longest, dropout) for _ in range(blocks))

    def forward(self, ids, times):  # [B, n] -> [B, n, D], L2-normalised
        n = ids.shape[1]
        valid = (ids > 0).unsqueeze(-1)
        x = F.embedding(ids, self.item) * math.sqrt(self.width) + self.position[:n]
        x = F.dropout(x, self.dropout, self.training) * valid
        following = torch.cat([times[:, 1:], times[:, -1:]], 1)
        gap = (following.unsqueeze(2) - times.unsqueeze(1)).abs().clamp(min=1)
        bucket = (gap.to(x.dtype).log() / 0.301).long().clamp(0, TIME_BUCKETS)
        k = torch.arange(n, device=ids.device)
        relative = (self.longest - 1) + k.unsqueeze(0) - k.unsqueeze(1)
        mask = (k.unsqueeze(0) <= k.unsqueeze(1)).to(x.dtype)
        for block in self.blocks:
            x = block(x, bucket, relative, mask) * valid
        return F.normalize(x, dim=-1, eps=1e-6)

    def losses(self, ids, times, negatives, tau=0.05):
        """ids, times [B, n + 1]; negatives [B, n, K]. Loss per position [B, n], and which positions are not padding."""
        h = self(ids, times)[:, :-1]
        target = ids[:, 1:]
        positive_rows, negative_rows = (
            F.normalize(F.embedding(i, self.item), dim=-1, eps=1e-6) for i in (target, negatives)
        )
        positive = (h * positive_rows).sum(-1, keepdim=True) / tau
        negative = torch.einsum("bnd,bnkd->bnk", h, negative_rows) / tau
        negative = torch.where(negatives == target.unsqueeze(-1), torch.full_like(negative, -5e4), negative)
        return -F.log_softmax(torch.cat([positive, negative], -1), -1)[..., 0], target > 0

    def loss(self, ids, times, num_negatives):
        negatives = torch.randint(1, self.num_items + 1, (*ids[:, 1:].shape, num_negatives), device=ids.device)
        losses, real = self.losses(ids, times, negatives)
        return (losses * real).sum() / real.sum()


def pack(users, newest: int, width: int):
    """The newest events except the last, left-aligned; the slots after them have the request time."""
    ids = torch.zeros(len(users), width, dtype=torch.long)
    times = torch.zeros_like(ids)
    for row, (items, stamps) in enumerate(users):
        history, history_stamps = items[:-1][-newest:], stamps[:-1][-newest:]
        ids[row, : len(history)] = torch.tensor(history)
        times[row, : len(history)] = torch.tensor(history_stamps)
        times[row, len(history) :] = stamps[-1]
    return ids, times


def metrics(rank: torch.Tensor) -> dict[str, float]:
    rank = rank.double()
    result = {}
    for k in (10, 50, 200):
        hit = (rank <= k).double()
        result[f"HR@{k}"] = hit.mean().item()
        result[f"NDCG@{k}"] = (hit / (rank + 1).log2()).mean().item()
    return result | {"MRR": (1 / rank).mean().item()}


def evaluate(model, users, max_len: int, device) -> dict[str, float]:
    ids, times = (t.to(device) for t in pack(users, max_len, max_len + 1))
    table = F.normalize(model.item.detach(), dim=-1, eps=1e-6)
    ranks = []
    model.eval()
    with torch.no_grad():
        for start in range(0, len(users), 512):
            chunk = slice(start, start + 512)
            length = (ids[chunk] > 0).sum(1)
            h = model(ids[chunk], times[chunk])
            score = h[torch.arange(len(length), device=device), length - 1] @ table.T
            score[:, 0] = -1e30
            target = torch.tensor([items[-1] for items, _ in users[chunk]], device=device)
            goal = score.gather(1, target[:, None]).clone()
            for row, (items, _) in enumerate(users[chunk]):
                score[row, torch.tensor(items[:-1], device=device)] = -1e30
            ranks.append(1 + (score > goal).sum(1))
    model.train()
    return metrics(torch.cat(ranks))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("dataset")
    add("--epochs", type=int, default=101)
    add("--seed", type=int, default=1)
    add("--blocks", type=int, default=2)
    add("--heads", type=int, default=1)
    add("--head-dim", type=int, default=50)
    add("--dim", type=int, default=50)
    add("--max-len", type=int, default=200)
    add("--negatives", type=int, default=128)
    add("--batch", type=int, default=128)
    add("--dropout", type=float, default=0.2)
    add("--lr", type=float, default=1e-3)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--threads", type=int, default=0)
    add("--compile", action="store_true")
    add("--warm-up", type=int, default=20, help="steps before the clock starts")
    add("--max-steps", type=int, default=0, help="stop after this many steps and report only the speed")
    add("--json", action="store_true")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    users = [user for user in load_users(options.dataset) if len(user[0]) > 2]
    num_items = max(max(items) for items, _ in users)
    ids, times = (t.to(options.device) for t in pack(users, options.max_len + 1, options.max_len + 1))
    lengths = (ids > 0).sum(1).cpu()
    model = Model(
        num_items, options.dim, options.blocks, options.heads, options.head_dim, options.max_len, options.dropout
    )
    model.to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.98), weight_decay=0.0)
    loss_function = torch.compile(model.loss) if options.compile else model.loss

    def synchronize():
        if options.device == "cuda":
            torch.cuda.synchronize()

    steps = tokens = 0
    begin = time.perf_counter()
    loss = torch.tensor(math.nan)
    for _ in range(options.epochs):
        order = torch.randperm(len(users))
        for start in range(0, len(users) - options.batch + 1, options.batch):
            chosen = order[start : start + options.batch]
            loss = loss_function(ids[chosen], times[chosen], options.negatives)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == options.warm_up:
                synchronize()
                begin, tokens = time.perf_counter(), 0
            elif steps > options.warm_up:
                tokens += int((lengths[chosen] - 1).sum())  # positions with a target
            if options.max_steps and steps >= options.max_steps:
                break
        if options.max_steps and steps >= options.max_steps:
            break
    synchronize()
    seconds = time.perf_counter() - begin
    timed = steps - min(options.warm_up, steps)
    speed = {
        "steps": timed,
        "seconds": seconds,
        "steps_per_s": timed / seconds,
        "tokens_per_s": tokens / seconds,
        "loss": loss.item(),
    }
    result = speed if options.max_steps else speed | evaluate(model, users, options.max_len, options.device)
    print(json.dumps(result) if options.json else "  ".join(f"{k} {v:.4f}" for k, v in result.items()), flush=True)


if __name__ == "__main__":
    main()
