"""What served before a swap is kept for ROLLBACK VIEW for a time, and then dropped by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from length import choose
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    Opened = Callable[..., AbstractContextManager[headrace.Database]]

pytestmark = pytest.mark.spark

VIEW = "CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g"
SAME = "SELECT g, count(*) AS n FROM t WHERE k > 1 GROUP BY g"
OTHER = "SELECT g, count(*) AS n, max(k) AS k FROM t GROUP BY g"
LISTED = "SELECT table_name, state, kept_until FROM information_schema.candidates ORDER BY 1"
BEGINS = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """The time of a database, which passes only when a test says so."""

    def __init__(self) -> None:
        self.now = BEGINS

    def __call__(self) -> int:
        return int(self.now.timestamp() * 1_000_000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, spark: SparkSession, clock: Clock) -> Opened:
    def connect(**settings: object) -> headrace.Database:
        given = {"continuous": False, "partitions": 2, **settings}
        return headrace.connect(tmp_path / "db", spark=spark, clock=clock, **given)

    return connect


@pytest.fixture
def db(opened: Opened) -> Iterator[headrace.Database]:
    with opened() as db:
        define(db)
        yield db


def define(db: headrace.Database) -> None:
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
    db.sql(VIEW)


def candidate(db: headrace.Database, query: str) -> None:
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v WITH (auto_swap = false) AS {query}")


def listed(db: headrace.Database) -> list[tuple[object, ...]]:
    return [tuple(row) for row in db.sql(LISTED).fetchall()]  # type: ignore[union-attr]


def contents(db: headrace.Database) -> list[tuple[object, ...]]:
    return sorted(tuple(row)[:2] for row in db.sql("SELECT * FROM v").fetchall())  # type: ignore[union-attr]


def test_the_former_build_is_dropped_when_its_time_is_over(
    db: headrace.Database, clock: Clock
) -> None:
    candidate(db, SAME)
    said = str(db.sql("SWAP VIEW v WITH (keep_former = '1 day')"))
    assert said.endswith("; what served before is kept until 2026-01-02 00:00:00.000+00:00")
    assert listed(db) == [("v", "served before", BEGINS + timedelta(days=1))]
    clock.now += timedelta(hours=23)
    db.compact()
    assert len(listed(db)) == 1
    before = len(db.parts.ledger.spines.arrangements())
    clock.now += timedelta(hours=1)
    db.compact()
    assert listed(db) == []
    assert len(db.parts.ledger.spines.arrangements()) < before
    with pytest.raises(HeadraceError, match="has no candidate"):
        db.sql("ROLLBACK VIEW v")
    assert contents(db) == [(1, 1), (2, 1)]
    assert {verdict for *_, verdict in db.sql("VERIFY").fetchall()} == {"equal to batch"}  # type: ignore[union-attr]


def test_what_serves_again_is_not_dropped(db: headrace.Database, clock: Clock) -> None:
    candidate(db, SAME)
    db.sql("SWAP VIEW v WITH (keep_former = '1 hour')")
    db.sql("ROLLBACK VIEW v")
    assert listed(db) == [("v", "waits", None)]
    clock.now += timedelta(days=2)
    db.compact()
    assert listed(db) == [("v", "waits", None)]
    assert contents(db) == [(1, 2), (2, 1)]
    db.sql("SWAP VIEW v")
    assert listed(db) == [("v", "served before", None)]
    clock.now += timedelta(days=2_000)
    db.compact()
    assert len(listed(db)) == 1


@pytest.mark.long
def test_views_that_were_swapped_together_are_dropped_together(
    db: headrace.Database, clock: Clock
) -> None:
    db.sql("CREATE MATERIALIZED VIEW w AS SELECT * FROM v")
    db.sql("CREATE INDEX i ON w (n)")
    views = db.parts.reader.catalog.views_in_order()
    candidate(db, OTHER)
    db.sql("SWAP VIEW v WITH (keep_former = '90 minutes')")
    ends = BEGINS + timedelta(minutes=90)
    assert listed(db) == [("v", "served before", ends), ("w", "served before", ends)]
    clock.now = ends
    db.compact()
    assert len(db.parts.reader.catalog.views_in_order()) == len(views)
    assert listed(db) == []
    assert len(db.sql("SELECT n, k FROM w").fetchall()) == 2  # type: ignore[union-attr]


def test_in_the_background_it_is_dropped_by_itself_also_after_another_start(
    opened: Opened, clock: Clock
) -> None:
    with opened(keep_former="2 days") as db:
        define(db)
        candidate(db, SAME)
        db.sql("SWAP VIEW v")
        assert listed(db) == [("v", "served before", BEGINS + timedelta(days=2))]
        clock.now += timedelta(days=3)
    with opened(keep_former="2 days", continuous=True) as db:
        until(lambda: listed(db) == [])
        candidate(db, VIEW.partition(" AS ")[2])
        db.sql("SWAP VIEW v WITH (keep_former = 'forever')")
        assert listed(db) == [("v", "served before", None)]
        if choose(False, True):  # noqa: FBT003
            db.sql("ROLLBACK VIEW v")
            db.sql("SWAP VIEW v WITH (keep_former = '1 second')")
            clock.now += timedelta(seconds=2)
            until(lambda: listed(db) == [])


def test_what_is_not_a_duration_is_refused(db: headrace.Database) -> None:
    candidate(db, SAME)
    for options, said in (
        ("keep_former = 'soon'", "is not a duration"),
        ("keep_former = '1 month'", "is not a duration"),
        ("keep = '1 day'", 'option "keep" does not exist'),
    ):
        with pytest.raises(HeadraceError, match=said) as caught:
            db.sql(f"SWAP VIEW v WITH ({options})")
        assert caught.value.code is Code.INVALID
    assert listed(db) == [("v", "waits", None)]
    with pytest.raises(HeadraceError, match='option "keep_former" does not exist'):
        db.sql("REBUILD VIEW v WITH (keep_former = '1 day')")
