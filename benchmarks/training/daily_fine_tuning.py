#!/usr/bin/env python3
"""Daily fine-tuning against training from scratch, judged by what users did on the following day.

    daily_fine_tuning.py [--build build] [--full 30] [--epochs 1 3 10] [--seeds 1 2 3] [--threads N] [-o RESULT.json]

The ratings of data/ml-latest-small in order of time: the first 90 % are the past, the rest is four days of equally many
events. After each day the data set grows by its events. Models that are compared:

    stale          trained on the past, never again
    fine-tuned E   after each day, E epochs on the grown data set by `train --resume`, from the day before
    from scratch   after each day, the full number of epochs with configs/demo.gin on the grown data set

Each then recommends, by `recommend --users`, for the events of the following day: 10 items from the user's events
before it. Reported are HR@10 and NDCG@10 over all of these events but each user's first ever, up to 20 of a user and
day; items that a model has never seen count as misses. Days 2 to 4 are judged: before day 1 all models are the same.
"""

import argparse
import collections
import csv
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAST, DAYS = 0.9, 4
MOST_TARGETS = 20  # of a user and a day
TOP_K = 10

Event = collections.namedtuple("Event", "time user item")


def read_events() -> list[Event]:
    with (ROOT / "data/ml-latest-small/ratings.csv").open(newline="") as file:
        events = [Event(int(row["timestamp"]), row["userId"], row["movieId"]) for row in csv.DictReader(file)]
    return sorted(events, key=lambda event: event.time)


def write_log(path: pathlib.Path, events: list[Event]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user_id", "item_id", "timestamp"])
        writer.writerows((event.user, event.item, event.time) for event in events)


def write_requests(path: pathlib.Path, before: list[Event], day: list[Event]) -> dict[str, str]:
    """A history for each event to be found; returns the item of each."""
    histories, targets, counts = collections.defaultdict(list), {}, collections.Counter()
    for event in before:
        histories[event.user].append(event)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "items", "timestamps", "request_time"])
        for event in day:
            history = histories[event.user]
            if history and counts[event.user] < MOST_TARGETS:
                counts[event.user] += 1
                name = f"{event.user}/{counts[event.user]}"
                targets[name] = event.item
                newest = history[-200:]
                items, times = (",".join(str(getattr(e, field)) for e in newest) for field in ("item", "time"))
                writer.writerow([name, items, times, event.time])
            history.append(event)
    return targets


class Study:
    def __init__(self, build: pathlib.Path, work: pathlib.Path, full: int, threads: int | None):
        self.binary, self.work, self.full = build / "bin/seqfuse", work, full
        self.threads = [] if threads is None else ["--threads", threads]
        events = read_events()
        edges = [round(len(events) * (PAST + (1 - PAST) * day / DAYS)) for day in range(DAYS + 1)]
        self.targets = []
        for day in range(DAYS):
            write_log(work / f"log{day}.csv", events[: edges[day]])
            self.run("preprocess", "--dataset-name", "csv", "--input", work / f"log{day}.csv", "--output",
                     self.data(day), "--time-column", "timestamp")  # fmt: skip
            requests = work / f"requests{day}.csv"
            self.targets.append(write_requests(requests, events[: edges[day]], events[edges[day] : edges[day + 1]]))

    def data(self, day: int) -> pathlib.Path:
        """The data set of the events before this day."""
        return self.work / f"data{day}"

    def run(self, *arguments) -> None:
        done = subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")

    def train(self, seed: int, day: int, name: str, resume_epochs: int | None = None) -> float:
        """Trains anew, or goes on; returns the seconds."""
        start = time.perf_counter()
        common = ["train", "retrieval", "--quiet", *self.threads, "--data", self.data(day)]
        if resume_epochs is not None:
            self.run(*common, "--resume", self.work / name, "--gin", f"TrainerArgs.num_epochs={resume_epochs}")
        else:
            # A split by time whose test set is as small as it may be: nearly all events are for training.
            values = ["DatasetArgs.dataset_name='csv'", "DatasetArgs.split='temporal'",
                      "DatasetArgs.train_fraction=0.9999", f"TrainerArgs.num_epochs={self.full}",
                      f"TrainerArgs.seed={seed}"]  # fmt: skip
            gin = [word for value in values for word in ("--gin", value)]
            self.run(*common, "--gin-config-file", ROOT / "configs/demo.gin", "--output", self.work / name, *gin)
        return time.perf_counter() - start

    def judge(self, name: str, day: int) -> tuple[float, float]:
        """Sums of HR@10 and NDCG@10 over the events of this day."""
        output = self.work / "recommendations.csv"
        self.run("recommend", self.work / name, "--users", self.work / f"requests{day}.csv", "--top-k", TOP_K,
                 "--skip-unknown", "--cold-users", "skip", "--output", output)  # fmt: skip
        hits = gain = 0.0
        with output.open(newline="") as file:
            for row in csv.DictReader(file):
                if self.targets[day][row["user"]] == row["item"]:
                    hits += 1
                    gain += 1 / math.log2(1 + int(row["rank"]))
        return hits, gain


def measure(study: Study, seed: int, epochs: list[int]) -> dict[str, dict]:
    scores = collections.defaultdict(lambda: [0.0, 0.0])
    seconds = collections.defaultdict(list)

    def judge(model: str, name: str, day: int) -> None:
        for place, value in enumerate(study.judge(name, day)):
            scores[model][place] += value

    base = f"base{seed}"
    seconds["stale"].append(study.train(seed, 0, base))
    for day in range(1, DAYS):
        judge("stale", base, day)
        scratch = f"scratch{seed}-{day}"
        seconds["from scratch"].append(study.train(seed, day, scratch))
        judge("from scratch", scratch, day)
        print(f"seed {seed}, day {day}: trained from scratch", file=sys.stderr, flush=True)
    for number in epochs:
        model, name = f"fine-tuned {number}", f"tuned{seed}-{number}"
        shutil.copytree(study.work / base, study.work / name)
        for day in range(1, DAYS):
            seconds[model].append(study.train(seed, day, name, resume_epochs=number))
            judge(model, name, day)
    events = sum(len(study.targets[day]) for day in range(1, DAYS))
    return {
        model: {
            "HR@10": hits / events,
            "NDCG@10": gain / events,
            "seconds_a_day": 0.0 if model == "stale" else sum(seconds[model]) / len(seconds[model]),
        }
        for model, (hits, gain) in scores.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--full", type=int, default=30, help="epochs of a training from scratch")
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 3, 10], help="of fine-tuning after each day")
    parser.add_argument("--threads", type=int, help="of training; default: all cores")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("-o", "--output", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = Study(arguments.build.resolve(), pathlib.Path(folder), arguments.full, arguments.threads)
        targets = {f"day {day + 1}": len(study.targets[day]) for day in range(1, DAYS)}
        result = {"targets": targets, "seeds": {}}
        for seed in arguments.seeds:
            result["seeds"][seed] = measure(study, seed, arguments.epochs)
            print(seed, json.dumps(result["seeds"][seed]), flush=True)
    models = result["seeds"][arguments.seeds[0]]
    result["mean"] = {
        model: {
            key: sum(one[model][key] for one in result["seeds"].values()) / len(arguments.seeds)
            for key in models[model]
        }
        for model in models
    }
    print(json.dumps(result["mean"], indent=1))
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
