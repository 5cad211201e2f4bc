"""The work of preprocess_pandas.py with polars' lazy frames: reads only the columns that it needs.

python preprocess_polars.py KUAIRAND_FOLDER OUTPUT.parquet
"""

import functools
import pathlib
import sys
import time

import polars as pl
from kuairand_columns import ACTIONS, CONTEXT


def main(folder: pathlib.Path, output: pathlib.Path) -> None:
    start = time.perf_counter()
    bits = [(pl.col(name) != 0).cast(pl.Int64) * (1 << bit) for bit, name in enumerate(ACTIONS)]
    action = functools.reduce(lambda left, right: left | right, bits)
    columns = ["user_id", "time_ms", "video_id", action.alias("action")]
    logs = [pl.scan_csv(file).select(columns) for file in sorted(folder.rglob("log_standard_*.csv"))]
    users = functools.reduce(
        lambda left, right: left.join(right, on="user_id", how="semi"),
        [log.select("user_id").unique() for log in logs],
    )
    log = pl.concat(logs).join(users, on="user_id", how="semi").collect()
    log = log.with_columns(item=pl.col("video_id").rank("dense").cast(pl.Int64))
    sequences = (
        log.sort("user_id", "time_ms", maintain_order=True)
        .group_by("user_id", maintain_order=True)
        .agg("item", "action", "time_ms")
    )

    (features_file,) = folder.rglob("user_features_*.csv")
    features = pl.read_csv(features_file).select("user_id", *CONTEXT)
    features = features.with_columns(pl.col(name).rank("dense").cast(pl.Int64) for name in CONTEXT)
    table = sequences.join(features, on="user_id", how="inner", maintain_order="left")
    table.write_parquet(output)

    seconds = time.perf_counter() - start
    print(f"{len(table)} users, {log['item'].n_unique()} items, {len(log)} events, {seconds:.2f} s")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
