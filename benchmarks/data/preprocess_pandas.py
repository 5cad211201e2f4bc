"""A typical pandas program that turns KuaiRand's logs into one row per user: the baseline of preprocess.sh.

    python preprocess_pandas.py KUAIRAND_FOLDER OUTPUT.parquet

Reads every log_standard_*.csv, keeps users that occur in all files, computes label bits, sorts by user
and time, collects lists per user, joins the context features and writes Parquet.
"""

import pathlib
import sys
import time

import pandas as pd
from kuairand_columns import ACTIONS, CONTEXT


def main(folder: pathlib.Path, output: pathlib.Path) -> None:
    start = time.perf_counter()
    logs = [pd.read_csv(file) for file in sorted(folder.rglob("log_standard_*.csv"))]
    users = set.intersection(*(set(log["user_id"]) for log in logs))
    log = pd.concat(logs, ignore_index=True)
    log = log[log["user_id"].isin(users)]

    log["action"] = 0
    for bit, name in enumerate(ACTIONS):
        log["action"] += (log[name] != 0).astype("int64") * (1 << bit)
    log["item"] = log["video_id"].astype("category").cat.codes + 1
    log = log.sort_values(["user_id", "time_ms"], kind="stable")
    sequences = log.groupby("user_id")[["item", "action", "time_ms"]].agg(list)

    (features_file,) = folder.rglob("user_features_*.csv")
    features = pd.read_csv(features_file).set_index("user_id")[CONTEXT]
    for name in CONTEXT:
        features[name] = features[name].astype("category").cat.codes + 1
    table = features.join(sequences, how="inner").reset_index()
    table.to_parquet(output)

    seconds = time.perf_counter() - start
    print(f"{len(table)} users, {log['item'].nunique()} items, {len(log)} events, {seconds:.2f} s")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
