"""Nexmark's queries q0 to q22, one after another: from JSON files to a view that can be read.

The texts are those of the test suite, where every query is held to its answer at every epoch. Each
reads just the files that it needs, and a rate counts their rows. All run in one process; of the
runs of a query the last one counts, and then ``VERIFY`` compares its view with Spark batch.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace
from benchmarks.counters import epochs_after, last_epoch, summary
from benchmarks.memory import Sampler
from benchmarks.nexmark import dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.nexmark import Dataset

SUITE = Path(__file__).parents[1] / "tests" / "suites" / "nexmark"
RELATIONS = ("bids", "auctions", "persons")
SIDE_ROWS = 100
"""The keys of the side input of q13."""


def texts() -> dict[str, str]:
    """Return the queries by name."""
    files = sorted(SUITE.glob("q*.sql"))
    return {f.stem: re.sub(r"--[^\n]*\n", "", f.read_text("utf-8")).strip() for f in files}


def files_of(query: str) -> tuple[str, ...]:
    """Return the relations with files that a query reads; auctions come before their bids."""
    words = set(re.findall(r"\w+", query))
    return tuple(name for name in ("persons", "auctions", "bids") if name in words)


def measure(
    directory: Path, events: int, runs: int, partitions: int, names: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return the figures of each query, or of those named.

    Raises:
        AssertionError: a view differs from Spark batch.
    """
    data = dataset(directory, events)
    with tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder:
        return list(_measured(Path(folder), data, runs, partitions, names))


def _measured(
    folder: Path, data: Dataset, runs: int, partitions: int, names: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    with Sampler() as used, headrace.connect(folder, partitions=partitions) as db:
        for name, query in texts().items():
            if names and name not in names:
                continue
            done = [_run(db, query, data, used) for _ in range(runs - 1)]
            done.append(_run(db, query, data, used, verify=True))
            rows = sum(data.rows(relation) for relation in files_of(query))
            yield {
                "query": name,
                "rows": rows,
                "rows_per_second": round(rows / done[-1]["seconds"]),
                "runs": done,
            }


def _run(
    db: Any, query: str, data: Dataset, used: Sampler, *, verify: bool = False
) -> dict[str, Any]:
    db.sql((SUITE / "schema.sql").read_text("utf-8"))
    values = ", ".join(f"({key}, 'value {key}')" for key in range(SIDE_ROWS))
    db.sql(f"INSERT INTO side_input VALUES {values}")
    db.sql(f"CREATE MATERIALIZED VIEW answer AS {query}")
    before, processor = last_epoch(db), sum(used.processor_seconds().values())
    begun = time.perf_counter()
    for relation in files_of(query):
        db.sql(f"COPY {relation} FROM '{getattr(data, relation)}'")
    db.flush()
    seconds = time.perf_counter() - begun
    processor = sum(used.processor_seconds().values()) - processor
    counters = summary(epochs_after(db, before))
    ((rows,),) = db.sql("SELECT count(*) FROM answer").fetchall()
    if verify:
        ((*_, verdict),) = db.sql("VERIFY answer").fetchall()
        if verdict != "equal to batch":
            raise AssertionError(f"the view of {query!r} is {verdict}")
    db.sql("DROP MATERIALIZED VIEW answer; DROP TABLE side_input")
    for relation in RELATIONS:
        db.sql(f"DROP STREAM {relation}")
    return {
        "seconds": round(seconds, 3),
        "processor_seconds": round(processor, 2),
        "answer_rows": rows,
        "counters": counters,
    }
