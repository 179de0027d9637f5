"""``python -m benchmarks.rebuilds``: what it costs to fill a view, to change it, and to swap it.

Three views over a stream of ``--rows`` rows are filled, each beside a plain Spark batch of its
query over the same rows in Parquet: by few keys, by many, and over a join. Views that could take
over state of these are filled with and without it. Then the first one gets another column: as a
candidate with the view above it, compared, validated and swapped. Epochs of one row go on
meanwhile; their times are printed beside those of a quiet database.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace

if TYPE_CHECKING:
    from collections.abc import Callable

_QUERIES = {
    "few": "SELECT k, count(*) AS n, sum(x) AS x FROM s GROUP BY k",
    "many": "SELECT u, count(*) AS n, sum(x) AS x FROM s GROUP BY u",
    "joined": "SELECT tier, count(*) AS n, sum(x) AS x FROM s JOIN users ON s.u = users.u"
    " GROUP BY tier",
}
_LIKE = {
    "few": "SELECT k, x / n AS mean FROM (SELECT k, count(*) AS n, sum(x) AS x FROM s GROUP BY k)",
    "many": f"{_QUERIES['many']} HAVING count(*) > 10",
    "joined": f"{_QUERIES['joined']} HAVING count(*) > 10",
}
"""Views like these, each with the same state below its last steps."""
_ABOVE = "CREATE MATERIALIZED VIEW above AS SELECT n, count(*) AS groups FROM few GROUP BY n"
_WIDER = "SELECT k, count(*) AS n, sum(x) AS x, max(x) AS most FROM s GROUP BY k"
_CHANGES = {
    "candidates filled": f"ALTER MATERIALIZED VIEW few WITH (auto_swap = false) AS {_WIDER}",
    "SHOW DIFF": "SHOW DIFF few",
    "VALIDATE": "VALIDATE VIEW few",
    "SWAP": "SWAP VIEW few",
    "ROLLBACK": "ROLLBACK VIEW few",
    "DROP CANDIDATE": "DROP CANDIDATE OF few",
    "REBUILD WITH DEPENDANTS": "REBUILD VIEW few WITH DEPENDANTS",
}


@click.command()
@click.option("--rows", default=2_000_000, show_default=True)
@click.option("--users", default=200_000, show_default=True)
def main(rows: int, users: int) -> None:
    """Measure fills and swaps."""
    random = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        events = pa.table({
            "id": np.arange(rows),
            "k": random.integers(0, 1000, rows).astype(np.int32),
            "u": random.integers(0, users, rows).astype(np.int32),
            "x": random.integers(0, 10**6, rows),
        })  # fmt: skip
        people = pa.table({
            "u": np.arange(users, dtype=np.int32),
            "tier": random.integers(0, 5, users).astype(np.int32),
        })  # fmt: skip
        with headrace.connect(place / "data") as db:
            db.sql("CREATE STREAM s (id BIGINT, k INT, u INT, x BIGINT)")
            db.sql("CREATE TABLE users (u INT PRIMARY KEY, tier INT)")
            db.insert("s", events)
            db.insert("users", people)
            db.flush()
            spark = db.parts.engine.spark
            for name, table in (("s", events), ("users", people)):
                pq.write_table(table, place / f"{name}.parquet")
                spark.read.parquet(str(place / f"{name}.parquet")).createOrReplaceTempView(name)
            _fills(db, spark, rows)
            _with_state(db)
            _swaps(db)


def _fills(db: headrace.Database, spark: Any, rows: int) -> None:
    """Fill each view twice, each time beside a batch of its query; print the second."""
    for turn in ("first", "again"):
        for name, query in _QUERIES.items():
            fill = _seconds(
                lambda n=name, q=query: db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW {n} AS {q}")
            )
            batch = _seconds(
                lambda q=query: spark.sql(q).write.format("noop").mode("overwrite").save()
            )
            click.echo(
                f"{name}, {turn}: filled in {fill:.1f} s,"
                f" {rows / fill / 1000:,.0f} thousand rows/s;"
                f" batch {batch:.1f} s, ratio {fill / batch:.2f}"
            )


def _with_state(db: headrace.Database) -> None:
    """Fill views that could take over state, without it and with it, twice each."""
    for name, query in _LIKE.items():
        took = dict.fromkeys(("false", "true"), 0.0)
        for reuse in ("false", "true", "false", "true"):
            create = f"CREATE MATERIALIZED VIEW other WITH (reuse = {reuse}) AS {query}"
            took[reuse] = _seconds(lambda text=create: db.sql(text))
            db.sql("DROP MATERIALIZED VIEW other")
        apart, with_it = took.values()
        click.echo(
            f"like {name}: filled in {apart:.2f} s, with its state in {with_it:.2f} s,"
            f" ratio {with_it / apart:.2f}"
        )


def _swaps(db: headrace.Database) -> None:
    """Print the time of each statement, and of the epochs of one row beside them."""
    db.sql(_ABOVE)
    quiet = _epochs_beside(db, lambda: time.sleep(5))
    click.echo(f"epochs alone: {_shown(quiet)}")
    for what, statement in _CHANGES.items():
        seconds = 0.0

        def change(text: str = statement) -> None:
            nonlocal seconds
            seconds = _seconds(lambda: db.sql(text).fetchall())

        beside = _epochs_beside(db, change)
        click.echo(f"{what}: {seconds:.2f} s; epochs meanwhile: {_shown(beside)}")
    verdicts = {row[-1] for row in db.sql("VERIFY").fetchall()}
    click.echo(f"all views: {', '.join(sorted(verdicts))}")


def _epochs_beside(db: headrace.Database, work: Callable[[], None]) -> list[float]:
    """Insert one row after another while something runs; return the seconds until each is read."""
    ends, found = threading.Event(), list[float]()

    def insert() -> None:
        with db.session() as session:
            while not ends.is_set():
                begun = time.perf_counter()
                session.sql("INSERT INTO s VALUES (-1, 1, 1, 1)")
                session.sql("SELECT n FROM few WHERE k = 1").fetchall()
                found.append(time.perf_counter() - begun)

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        work()
    finally:
        ends.set()
        thread.join()
    return found


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _shown(seconds: list[float]) -> str:
    p50, p99 = np.percentile(np.array(seconds) * 1000, (50, 99))
    return f"{len(seconds):,}, p50 {p50:,.0f} ms, p99 {p99:,.0f} ms"


if __name__ == "__main__":
    main()
