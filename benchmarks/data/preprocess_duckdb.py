"""The work of preprocess_pandas.py as SQL in DuckDB.

python preprocess_duckdb.py KUAIRAND_FOLDER OUTPUT.parquet
"""

import pathlib
import sys
import time

import duckdb
from kuairand_columns import ACTIONS, CONTEXT


def main(folder: pathlib.Path, output: pathlib.Path) -> None:
    start = time.perf_counter()
    files = sorted(str(file) for file in folder.rglob("log_standard_*.csv"))
    (features,) = folder.rglob("user_features_*.csv")
    action = " | ".join(f"(({name} != 0)::BIGINT << {bit})" for bit, name in enumerate(ACTIONS))
    ranks = ", ".join(f"dense_rank() OVER (ORDER BY {name}) AS {name}" for name in CONTEXT)
    database = duckdb.connect()
    database.execute(
        f"""
        CREATE TABLE raw AS
            SELECT user_id, time_ms, video_id, {action} AS action, filename
            FROM read_csv({files}, filename = true);
        CREATE TABLE kept AS
            SELECT user_id, time_ms, video_id, action
            FROM raw
            JOIN (SELECT user_id FROM raw GROUP BY user_id HAVING count(DISTINCT filename) = {len(files)})
                USING (user_id);
        CREATE TABLE log AS
            SELECT user_id, time_ms, action, item
            FROM kept
            JOIN (
                SELECT video_id, row_number() OVER (ORDER BY video_id) AS item
                FROM (SELECT DISTINCT video_id FROM kept)
            ) USING (video_id);
        COPY (
            SELECT * FROM (SELECT user_id, {ranks} FROM read_csv('{features}'))
            JOIN (
                SELECT user_id, list(item ORDER BY time_ms) AS item, list(action ORDER BY time_ms) AS action,
                       list(time_ms ORDER BY time_ms) AS time_ms
                FROM log GROUP BY user_id
            ) USING (user_id)
            ORDER BY user_id
        ) TO '{output}' (FORMAT parquet)
        """
    )
    count = "SELECT count(DISTINCT user_id), count(DISTINCT item), count(*) FROM log"
    users, items, events = database.execute(count).fetchone()
    seconds = time.perf_counter() - start
    print(f"{users} users, {items} items, {events} events, {seconds:.2f} s")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
