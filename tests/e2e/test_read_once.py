"""What statements read of logs: each once for all views that ask, and only what is touched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from headrace.storage.log import EmbeddedLog, segments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    import headrace
    from headrace.storage.ledger import Segment
    from headrace.storage.log import LogShare

VIEWS = {
    "totals": "SELECT k, sum(x) AS x FROM s GROUP BY k",
    "rows": "SELECT count(*) AS n FROM s",
    "pairs": "SELECT a.x AS x, b.x AS y FROM s a JOIN s b ON a.x = b.x + 1",
    "later": "SELECT x, ROWOFFSET AS o FROM s WHERE x > 2",
    "named": "SELECT name, sum(x) AS x FROM s JOIN g ON s.k = g.k GROUP BY name",
    "groups": "SELECT name, count(*) AS n FROM g GROUP BY name",
    "among": "SELECT x FROM s WHERE k IN (SELECT k FROM g WHERE name <> 'b') OR x = 1",
}


@dataclass(frozen=True)
class CountingLog:
    """Notes each reading of a part of a log in a file."""

    notes: Path

    def read(
        self, directory: Path, share: LogShare, columns: pa.Schema, **given: Any
    ) -> Iterator[pa.RecordBatch]:
        with self.notes.open("a") as file:
            file.write(f"{share.segments[0].relation} {share.first}\n" if share.rows else "")
        yield from EmbeddedLog().read(directory, share, columns, **given)


@pytest.fixture
def shop(db: headrace.Database) -> headrace.Database:
    db.sql("CREATE STREAM s (k INT, x INT); CREATE TABLE g (k INT PRIMARY KEY, name STRING)")
    for name, query in VIEWS.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    db.sql("INSERT INTO g VALUES (0, 'a'), (1, 'b'), (2, 'c')")
    for i in range(8):
        db.sql(f"INSERT INTO s VALUES ({i % 3}, {i})")
    db.flush()
    return db


@pytest.mark.spark
def test_verify_reads_each_log_once_for_all_views(
    shop: headrace.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    canonical = shop.parts.comparing.canonical
    canonical.leaves = replace(canonical.leaves, log=CountingLog(notes))
    for relation in shop.parts.reader.catalog:
        canonical.declare(relation)

    def verified() -> dict[int, int]:
        """Return how often each part of a log was read, at most."""
        notes.write_text("")
        found = {verdict for *_, verdict in shop.sql("VERIFY").fetchall()}
        assert found == {"equal to batch"}
        lines = notes.read_text().splitlines()
        most: dict[int, int] = {}
        for line in lines:
            relation = int(line.split()[0])
            most[relation] = max(most.get(relation, 0), lines.count(line))
        return most

    by_name = {r.name: r.id for r in shop.parts.reader.catalog}
    once = {by_name["s"]: 1, by_name["g"]: 1}
    assert verified() == once
    shop.sql("INSERT INTO s VALUES (1, 9); INSERT INTO g VALUES (3, 'd')")
    assert verified() == once, "of another state"
    shop.sql("CORRECT STREAM s REPLACE SET x = 20 WHERE x = 4; CORRECT STREAM s VOID WHERE x = 5")
    assert verified() == once, "with corrections"
    monkeypatch.setattr("headrace.lifecycle.history.comparing._MOST_KEPT_BYTES", 0)
    assert min(verified().values()) > 1, "what is large is read by each comparison"


@pytest.mark.spark
def test_a_correction_opens_what_may_hold_its_events_and_runs_no_job(
    shop: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(8, 68):
        shop.sql(f"INSERT INTO s VALUES ({i % 3}, {i})")
    shop.sql("CORRECT STREAM s REPLACE SET x = 100 WHERE x = 50")  # some views keep more from now
    shop.flush()
    opened, blocks = set[tuple[str, int]](), segments._blocks
    context = shop.parts.engine.spark.sparkContext

    def jobs() -> int:
        return int(context._jsc.sc().statusStore().jobsList(None).size())

    def noted(directory: Path, segment: Segment, *range_: Any) -> Iterator[segments.LogBlock]:
        opened.add((segment.file.name, segment.file.position))
        return blocks(directory, segment, *range_)

    monkeypatch.setattr(segments, "_blocks", noted)
    for where, most in [("x = 30", 3), ("k = 1 AND x BETWEEN 40 AND 41", 4), ("x = 100", 4)]:
        before = jobs()
        opened.clear()
        done = shop.sql(f"CORRECT STREAM s REPLACE SET x = x + 200 WHERE {where}")
        assert done.message == "1 event replaced"
        (total,) = shop.sql("SELECT n FROM rows").fetchall()
        assert total == (68,)
        assert len(opened) <= most, where
        assert jobs() == before, where
    assert {verdict for *_, verdict in shop.sql("VERIFY").fetchall()} == {"equal to batch"}
