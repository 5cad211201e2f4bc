"""The share of dynamic tables in a training step of configs/benchmark_ranking.gin with an item and a user table.

    python benchmarks/embeddings/tables_share.py OUTPUT [--pipeline prefetch] [--json result.json]

Both tables have rows of 128 float32 weights with Adam's moments, 1536 bytes; a table of 50 million rows takes 82 GB,
two take 164 GB, more than 128 GiB of host memory. So the item table, which each event reads, is in pinned memory of the
host behind a cache in GPU memory, and of the user table, which each sequence reads once, three quarters are in GPU
memory and the rest in the host's: 103 GB of the host's memory in all.

Prints seconds per step (from metrics.jsonl, between the second and the last logged step before the profile), and what
of a profiled step the kernels of tables take: lookups, sums of gradients, copies of rows, updates. Copies on a second
stream (--pipeline prefetch) count in full though other kernels may hide them, so the share is an upper bound.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLASS = "embeddings and jagged"  # also jagged operators that are not of tables

USER_TABLE = """
user/FeatureArgs.feature_names = ['user']
user/FeatureArgs.max_sequence_length = 1
user/DynamicEmbeddingArgs.feature_names = ['user']
user/DynamicEmbeddingArgs.table_name = 'user'
user/DynamicEmbeddingArgs.item_vocab_size_or_capacity = {rows}
user/DynamicEmbeddingArgs.item_vocab_gpu_capacity_ratio = {user_share}
item/DynamicEmbeddingArgs.item_vocab_size_or_capacity = {rows}
item/DynamicEmbeddingArgs.item_vocab_gpu_capacity_ratio = None
item/DynamicEmbeddingArgs.item_vocab_gpu_capacity = {cache}
item/DynamicEmbeddingArgs.caching = True
BenchmarkDatasetArgs.feature_args = [@event/FeatureArgs(), @user/FeatureArgs()]
BenchmarkDatasetArgs.embedding_args = [
    @item/DynamicEmbeddingArgs(),
    @user/DynamicEmbeddingArgs(),
    @action/EmbeddingArgs(),
]
BenchmarkDatasetArgs.contextual_feature_names = ['user']
BenchmarkDatasetArgs.num_generated_batches = {batches}
NetworkArgs.contextual_embedding_dim = 128
TrainerArgs.pipeline_type = '{pipeline}'
TrainerArgs.train_batch_size = {users}
TrainerArgs.eval_batch_size = 4
TrainerArgs.max_eval_iters = 1
TrainerArgs.eval_interval = 1000000
TrainerArgs.ckpt_save_interval = 1000000
TrainerArgs.log_interval = 4
TrainerArgs.max_train_iters = {steps}
TrainerArgs.profile = True
TrainerArgs.profile_step_start = {profile_start}
TrainerArgs.profile_step_end = {profile_end}
"""


def main() -> None:
    """Trains once and prints the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="folder for the run; must not exist")
    parser.add_argument("--seqfuse", default=str(ROOT / "build/bin/seqfuse"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--pipeline", default="native", choices=["none", "native", "prefetch"])
    parser.add_argument("--rows", type=int, default=50_000_000, help="of each table")
    parser.add_argument("--cache", type=int, default=2_000_000, help="rows of the item table's cache")
    parser.add_argument("--user-share", type=float, default=0.75, help="rows of the user table in GPU memory")
    parser.add_argument("--users", type=int, default=32, help="sequences of a batch")
    parser.add_argument("--steps", type=int, default=44, help="the last 12 but one are profiled")
    parser.add_argument("--batches", type=int, default=44, help="different batches; as many as steps: ids are new")
    parser.add_argument("--gin", action="append", default=[], help="further parameters, for smaller runs")
    parser.add_argument("--json", help="file for the results")
    args = parser.parse_args()
    start = args.steps - 13
    if start < 17:
        parser.error(f"--steps is {args.steps}; expected at least 30")

    output = pathlib.Path(args.output)
    gin = output.with_name(output.name + ".gin")
    gin.parent.mkdir(parents=True, exist_ok=True)
    gin.write_text(
        (ROOT / "configs/benchmark_ranking.gin").read_text()
        + USER_TABLE.format(
            rows=args.rows,
            cache=args.cache,
            user_share=args.user_share,
            batches=args.batches,
            pipeline=args.pipeline,
            users=args.users,
            steps=args.steps,
            profile_start=start,
            profile_end=args.steps - 1,
        )
    )
    command = [args.seqfuse, "train", "ranking", "--gin-config-file", str(gin), "--device", args.device]
    command += ["--output", str(output)]
    for parameter in args.gin:
        command += ["--gin", parameter]
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    seconds_in_all = time.perf_counter() - begin

    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "loss" in line and line["step"] <= start][1:]
    seconds = (logged[-1]["seconds"] - logged[0]["seconds"]) / (logged[-1]["step"] - logged[0]["step"])
    profile = json.loads((output / "profile.json").read_text())
    result = {
        "device": profile["device"],
        "command": " ".join(["python", *sys.argv]),
        "date": time.strftime("%Y-%m-%d"),
        "seconds_a_step": seconds,
        "seconds_in_all": seconds_in_all,
        "profile": profile,
    }
    print(f"{profile['device']}, pipeline {args.pipeline}: {seconds:.4f} s a step; the run took {seconds_in_all:.0f} s")
    if "classes" in profile:  # on the CPU there are none
        tables = sum(row["seconds_a_step"] for row in profile["classes"] if row["name"] == CLASS)
        updates = sum(row["seconds_a_step"] for row in profile["kernels"] if "UpdateRows" in row["name"])
        result["tables_seconds_a_step"], result["tables_share"] = tables + updates, (tables + updates) / seconds
        print(
            f"tables and jagged operators {1e3 * tables:.2f} ms, updates of rows {1e3 * updates:.2f} ms a step: "
            f"{100 * result['tables_share']:.2f} % (goal 3 %)"
        )
        for row in profile["kernels"]:
            if "hash_table" in row["name"]:
                print(f"  {1e3 * row['seconds_a_step']:8.3f} ms  {row['name'][:100]}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
