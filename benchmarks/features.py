"""``python -m benchmarks.features``: values of views for many keys, each as of its own time.

One view is read by the time of commit, through a history of ``--epochs`` epochs of ``--changes``
changes each; another by a column of times, of which it has two rows for each change. Both are read
for ``--pairs`` pairs of a random key and time, and a sample is compared with reads AS OF an epoch.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

import headrace
from headrace.types import Epoch

_COMPARED = 5
_STEPS = """
CREATE STREAM purchases (user_id BIGINT, amount BIGINT, at TIMESTAMP);
CREATE MATERIALIZED VIEW totals WITH (history = '{kept} epochs') AS
  SELECT user_id, count(*) AS n, sum(amount) AS spent, max(at) AS last FROM purchases
  GROUP BY user_id;
"""
_WEEK = """CREATE MATERIALIZED VIEW week AS
  WITH steps AS (
    SELECT user_id, at AS valid_from, 1 AS n, amount FROM purchases
    UNION ALL SELECT user_id, at + INTERVAL '7' DAY, -1, -amount FROM purchases)
  SELECT user_id, valid_from, sum(sum(n)) OVER upto AS n_7d, sum(sum(amount)) OVER upto AS spent_7d
  FROM steps GROUP BY user_id, valid_from
  WINDOW upto AS (PARTITION BY user_id ORDER BY valid_from)"""


@click.command()
@click.option("--epochs", default=5000, show_default=True)
@click.option("--changes", default=100, show_default=True, help="Changes of each epoch.")
@click.option("--users", default=20_000, show_default=True)
@click.option("--pairs", default=100_000, show_default=True)
def main(epochs: int, changes: int, users: int, pairs: int) -> None:
    """Measure point-in-time reads."""
    random = np.random.default_rng(5)
    begin = time.time()
    with (
        tempfile.TemporaryDirectory() as folder,
        headrace.connect(Path(folder) / "data", continuous=False) as db,
    ):
        db.sql(_STEPS.format(kept=epochs + 100))
        for _ in range(epochs):
            at = begin * 1e6 - random.integers(0, 100 * 86_400_000_000, changes)
            db.insert(
                "purchases",
                pa.table({
                    "user_id": random.integers(0, users, changes),
                    "amount": random.integers(0, 1000, changes),
                    "at": pa.array(at.astype(np.int64), pa.timestamp("us", "UTC")),
                }),
            )  # fmt: skip
            db.flush()
        db.parts.pump.compaction.run()
        click.echo(f"{epochs:,} epochs in {time.time() - begin:.0f} s")
        db.sql(_WEEK)
        ledger = db.parts.ledger
        (since,) = db.sql(
            "SELECT readable_from FROM information_schema.tables WHERE table_name = 'totals'"
        ).fetchall()[0]
        _, times = ledger.epochs.commit_times(Epoch(since), ledger.head.epoch)
        committed = random.integers(times[0], times[-1], pairs)
        events = (begin * 1e6 - random.integers(0, 100 * 86_400_000_000, pairs)).astype(np.int64)
        for view, instants in (("totals", committed), ("week", events)):
            asked = pa.table({
                "user_id": random.integers(0, users, pairs),
                "at": pa.array(instants, pa.timestamp("us", "UTC")),
            })  # fmt: skip
            for turn in ("first", "again"):
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                begun = time.perf_counter()
                found = db.as_of(asked, view).to_arrow()
                seconds = time.perf_counter() - begun
                more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
                filled = pairs - found.column(2).null_count
                click.echo(
                    f"{view}, {turn}: {pairs:,} pairs in {seconds:.2f} s, {filled:,} with a row,"
                    f" {more:.0f} MB more at the peak"
                )
            if view == "totals":
                _compare(db, found, ledger.epochs.at)
        begun = time.perf_counter()
        few = db.as_of(asked.slice(0, 100), "week")
        click.echo(f"week, 100 pairs: {time.perf_counter() - begun:.2f} s, {len(few)} rows")


def _compare(db: headrace.Database, found: pa.Table, epoch_at: object) -> None:
    """Raise if a sample of rows differs from what the view was at that time."""
    for row in found.slice(0, _COMPARED).to_pylist():
        epoch = epoch_at(row["at"].timestamp())  # type: ignore[operator]
        user = f"WHERE user_id = {row['user_id']} AS OF EPOCH {epoch}"
        then = db.sql(f"SELECT n, spent, last FROM totals {user}").fetchall()
        values = (row["n"], row["spent"], row["last"])
        if (then or [(None, None, None)]) != [values]:
            raise ValueError(f"{row} differs from {then}")


if __name__ == "__main__":
    main()
