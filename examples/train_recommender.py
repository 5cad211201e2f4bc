"""Trains a small HSTU recommender in plain PyTorch, with the layers and losses of seqfuse.

python examples/train_recommender.py [--data data/ml-latest-small] [--epochs 20] [--device cuda] [--compile]

Reads ratings.csv (userId, movieId, rating, timestamp), learns the next movie at each position of each user's history,
and predicts the held-out last one: HR@10 and NDCG@10 among all movies the user has not rated, next to popularity.
"""

import argparse
import csv
import pathlib
import time

import torch
from torch import Tensor, nn
from torch.nn import functional

import seqfuse


class Histories:
    """Each user's movies (ids from 0) and times, in order of time."""

    def __init__(self, folder: pathlib.Path, max_users: int | None) -> None:
        events: dict[str, list[tuple[int, str]]] = {}
        with (folder / "ratings.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                events.setdefault(row["userId"], []).append((int(row["timestamp"]), row["movieId"]))
        users = [sorted(user, key=lambda event: event[0]) for user in list(events.values())[:max_users]]
        names = sorted({movie for user in users for _, movie in user})
        number = {name: n for n, name in enumerate(names)}
        self.num_items = len(names)
        self.items = [torch.tensor([number[movie] for _, movie in user]) for user in users if len(user) >= 3]
        self.times = [torch.tensor([at for at, _ in user]) for user in users if len(user) >= 3]

    def popularity(self) -> Tensor:
        """How often each movie occurs, without each user's last."""
        return torch.cat([items[:-1] for items in self.items]).bincount(minlength=self.num_items)


class Recommender(nn.Module):
    """Maps movies and times to a normalised vector per position, to be compared with movie vectors."""

    def __init__(self, num_items: int, max_len: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.max_len, self.scale, self.dropout = max_len, width**0.5, dropout
        self.items = nn.Parameter(torch.randn(num_items, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(max_len, width) * 0.02)
        self.layers = nn.ModuleList(
            seqfuse.HSTULayer.research(width, 1, width, max_seqlen=max_len, dropout=dropout) for _ in range(layers)
        )

    def forward(self, ids: Tensor, offsets: Tensor, times: Tensor, request_times: Tensor) -> Tensor:
        x = seqfuse.embedding_lookup(self.items, ids)
        x = seqfuse.position_encoding(x, self.positions, offsets, scale=self.scale)
        x = functional.dropout(x, self.dropout, self.training)
        for layer in self.layers:
            x = layer(x, offsets, timestamps=times, request_times=request_times, max_seqlen=self.max_len)
        return seqfuse.l2_normalize(x)


def make_batch(histories: Histories, users: list[int], max_len: int, device: str, held_out: int):
    """The newest max_len events of each user before the last, and the movie after each of them as targets.

    held_out: how many events at the end are neither read nor targets: 1 for training, 0 for the test.
    """

    def pieces(events: list[Tensor], shift: int) -> list[Tensor]:
        ends = [len(events[u]) - held_out - 1 + shift for u in users]
        return [events[u][max(shift, end - max_len) : end] for u, end in zip(users, ends)]

    items, times = pieces(histories.items, 0), pieces(histories.times, 0)
    targets = torch.cat(pieces(histories.items, 1))
    request_times = torch.stack([histories.times[u][len(histories.times[u]) - held_out - 1] for u in users])
    offsets = seqfuse.lengths_to_offsets(torch.tensor([len(piece) for piece in items]))
    return [t.to(device) for t in (torch.cat(items), offsets, torch.cat(times), request_times, targets)]


def train(model: Recommender, histories: Histories, options: argparse.Namespace) -> None:
    step = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0)
    pool = torch.arange(histories.num_items, device=options.device)
    start = time.monotonic()
    for epoch in range(options.epochs):
        model.train()
        losses, count = 0.0, 0
        for chunk in torch.randperm(len(histories.items)).split(32):
            *inputs, targets = make_batch(histories, chunk.tolist(), model.max_len, options.device, held_out=1)
            seed = int(torch.randint(2**31, ()))
            negatives = seqfuse.sample_uniform(pool, len(targets), options.negatives, seed)
            table = seqfuse.l2_normalize(model.items)
            loss = seqfuse.sampled_softmax_loss(step(*inputs), table, targets, negatives, temperature=0.05)
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
            losses, count = losses + float(loss.detach().sum()), count + len(loss)
        seconds = time.monotonic() - start
        print(f"epoch {epoch + 1:2d}  loss {losses / count:.4f}  {seconds:5.1f} s", flush=True)


def ranks_of(scores: Tensor, histories: Histories, users: list[int]) -> Tensor:
    """The rank, from 1, of each user's last movie among those the user had not rated. scores: [users, movies]."""
    ranks = []
    for user, row in zip(users, scores.cpu()):
        items = histories.items[user]
        unseen = row.index_fill(0, items[:-1], -torch.inf)
        ranks.append(1 + (unseen > row[items[-1]]).sum())
    return torch.stack(ranks)


@torch.no_grad()
def test(model: Recommender, histories: Histories, device: str) -> Tensor:
    model.eval()
    table = seqfuse.l2_normalize(model.items)
    ranks = []
    for chunk in torch.arange(len(histories.items)).split(128):
        *inputs, _ = make_batch(histories, chunk.tolist(), model.max_len, device, held_out=0)
        last = model(*inputs)[inputs[1][1:] - 1]
        ranks.append(ranks_of(last @ table.T, histories, chunk.tolist()))
    return torch.cat(ranks)


def report(name: str, ranks: Tensor) -> None:
    hits = ranks <= 10
    ndcg = torch.where(hits, 1 / torch.log2(ranks + 1.0), 0.0)
    print(f"{name:12s} HR@10 {hits.float().mean():.4f}  NDCG@10 {ndcg.mean():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("data/ml-latest-small"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--negatives", type=int, default=128, help="for each place (default 128)")
    parser.add_argument("--max-len", type=int, default=200, help="events that are read of a user (default 200)")
    parser.add_argument("--max-users", type=int, help="train on this many users, the first ones")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="run the model through torch.compile")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    histories = Histories(options.data, options.max_users)
    users = list(range(len(histories.items)))
    print(f"{len(users)} users, {histories.num_items} movies")
    model = Recommender(histories.num_items, options.max_len, width=50, layers=2, dropout=0.2).to(options.device)
    train(model, histories, options)
    report("HSTU", test(model, histories, options.device))
    popular = histories.popularity().float().expand(len(users), -1)
    report("popularity", ranks_of(popular, histories, users))


if __name__ == "__main__":
    main()
