"""Runs for tests of Python code, trained by the executable that SEQFUSE_BINARY names."""

import json
import os
import pathlib
import subprocess

import pytest

BINARY = os.environ.get("SEQFUSE_BINARY", "")
USERS, EVENTS, ITEMS = 60, 10, 50

CONFIG = """
DatasetArgs.dataset_name = 'csv'
DatasetArgs.max_history_seqlen = 8
DatasetArgs.split = 'leave_one_out'
NetworkArgs.num_layers = 2
NetworkArgs.hidden_size = 16
NetworkArgs.num_attention_heads = 2
NetworkArgs.kv_channels = 8
RetrievalArgs.negatives = 'full'
RetrievalArgs.eval_metrics = ['MRR']
RankingArgs.prediction_head_arch = [8, 5]
RankingArgs.eval_metrics = ['AUC']
OptimizerArgs.optimizer_str = 'adamw'
OptimizerArgs.learning_rate = 0.01
TrainerArgs.train_batch_size = 8
TrainerArgs.eval_batch_size = 8
TrainerArgs.max_train_iters = 12
"""


def run_seqfuse(*arguments: object) -> str:
    """Standard output of the executable."""
    command = [BINARY, *(str(argument) for argument in arguments)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, f"{command}\n{finished.stderr}"
    return finished.stdout


def recommend(run: pathlib.Path, *arguments: object) -> list[tuple[str, float]]:
    """(item, score), best first, from the executable."""
    answer = json.loads(run_seqfuse("recommend", run, "--json", *arguments))
    return [(item["item"], item["score"]) for item in answer["items"]]


def history_of(user: int) -> dict:
    """The events of user u<user> as arguments of RetrievalRun.recommend."""
    return {
        "history": [f"item{(user * 7 + i * (1 + user % 3)) % ITEMS}" for i in range(EVENTS)],
        "timestamps": [1000 * user + 60 * i for i in range(EVENTS)],
        "actions": [str((user + i) % 5) for i in range(EVENTS)],
        "context": {"country": f"country{user % 3}"},
    }


def train_runs(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """A run for each of "hstu_research", "hstu", "hstu_no_actions" (with neither actions nor context) and "ranking"."""
    if not BINARY:
        pytest.skip("SEQFUSE_BINARY does not name the executable, which trains the runs")
    rows = ["user_id,item_id,timestamp,rating,country"]
    for user in range(USERS):
        events = history_of(user)
        for item, time, action in zip(events["history"], events["timestamps"], events["actions"]):
            rows.append(f"u{user},{item},{time},{action},{events['context']['country']}")
    (folder / "log.csv").write_text("\n".join(rows) + "\n")
    (folder / "config.gin").write_text(CONFIG)
    made = ("preprocess", "--dataset-name", "csv", "--input", folder / "log.csv", "--time-column", "timestamp")
    run_seqfuse(*made, "--output", folder / "data", "--action-column", "rating", "--context-columns", "country")
    run_seqfuse(*made, "--output", folder / "items_alone")

    def train(name: str, task: str, data: str, *more: str) -> pathlib.Path:
        options = [word for setting in more for word in ("--gin", setting)]
        common = ("--gin-config-file", folder / "config.gin", "--data", folder / data, "--output", folder / name)
        run_seqfuse("train", task, *common, *options)
        return folder / name

    return {
        "hstu_research": train("hstu_research", "retrieval", "data", "NetworkArgs.architecture='hstu_research'"),
        "hstu": train("hstu", "retrieval", "data", "NetworkArgs.item_embedding_dim=16"),
        "hstu_no_actions": train("hstu_no_actions", "retrieval", "items_alone", "NetworkArgs.max_attn_len=3"),
        "ranking": train("ranking", "ranking", "data", "DatasetArgs.max_num_candidates=1"),
    }
