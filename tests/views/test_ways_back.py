"""A view that has stopped has a way back: what served before, another query, or its repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import HeadraceError
from headrace.interfaces.statements.checking.repairs import Rebuilds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FORMER = "SELECT k, length(txt) AS n FROM t"
FAILS = "SELECT k, CAST(txt AS INT) AS n FROM t"
WIDER = "SELECT k, CAST(txt AS INT) AS n, txt FROM t"


@pytest.fixture
def directory(tmp_path: Path, spark: SparkSession) -> Path:
    """A database whose view was replaced by one that has stopped since, with views above it.

    ``joined`` reads a table that has changed since; ``late`` is refreshed apart.
    """
    with connected(tmp_path, spark) as db:
        for statement in (
            "CREATE TABLE t (k INT PRIMARY KEY, txt STRING)",
            "CREATE TABLE g (k INT PRIMARY KEY)",
            "INSERT INTO t VALUES (1, '1'), (2, '2')",
            "INSERT INTO g VALUES (1), (2)",
            f"CREATE MATERIALIZED VIEW v AS {FORMER}",
            "CREATE MATERIALIZED VIEW joined AS SELECT v.k, n FROM v JOIN g ON v.k = g.k",
            (
                "CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS"
                " SELECT count(*) AS rows FROM joined"
            ),
            "CREATE MATERIALIZED VIEW over_late AS SELECT rows FROM late, g WHERE g.k = 2",
            (
                "CREATE SINK s FROM joined WITH (connector = 'filesystem', path = 'out',"
                " format = 'json')"
            ),
        ):
            db.sql(statement)
    return tmp_path


def connected(directory: Path, spark: SparkSession) -> headrace.Database:
    return headrace.connect(directory / "db", spark=spark, continuous=False, partitions=2)


@pytest.fixture
def db(directory: Path, spark: SparkSession) -> Iterator[headrace.Database]:
    with connected(directory, spark) as db:
        yield db


def candidate(db: headrace.Database, query: str) -> None:
    db.sql(f"ALTER MATERIALIZED VIEW v WITH (auto_swap = false) AS {query}")


def stop(db: headrace.Database) -> None:
    """Insert a row with which the query fails, and change what is joined with the view."""
    db.sql("INSERT INTO t VALUES (3, 'three')")
    db.flush()
    db.sql("INSERT INTO g VALUES (3)")
    db.sql("DELETE FROM g WHERE k = 1")
    db.flush()
    with pytest.raises(HeadraceError, match='view "joined" stopped, since it reads view "v"'):
        db.sql("SELECT * FROM joined")


def rows(db: headrace.Database, name: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in db.sql(f"SELECT * FROM {name}").fetchall())  # type: ignore[union-attr]


def polled(changes: headrace.Subscription) -> list[tuple[int, tuple[object, ...]]]:
    return sorted((each.weight, tuple(each.row.values())) for each in changes.poll())


def verify(db: headrace.Database) -> None:
    found = db.sql("VERIFY").fetchall()  # type: ignore[union-attr]
    assert {verdict.partition(",")[0] for *_, verdict in found} == {"equal to batch"}


def test_a_view_that_stopped_can_be_rolled_back_and_what_is_above_gets_just_the_difference(
    directory: Path, spark: SparkSession
) -> None:
    with connected(directory, spark) as db:
        candidate(db, FAILS)
        db.sql("SWAP VIEW v")
        with db.subscribe("joined") as joined, db.subscribe("v") as changes:
            joined.poll()
            changes.poll()
            stop(db)
            with pytest.raises(HeadraceError, match="stopped") as caught:
                db.sql("SELECT * FROM v")
            assert "ROLLBACK VIEW v lets what served before serve again" in str(caught.value.hint)
            before = db.parts.ledger.head.epoch
            said = str(db.sql("ROLLBACK VIEW v"))
            assert said.startswith("rolled back view v: 3 rows changed in epoch ")
            assert "joined: rebuilt in epoch" in said
            assert polled(changes) == [(-1, (2, 2)), (1, (2, 1)), (1, (3, 5))]
            assert polled(joined) == [(-1, (1, 1)), (-1, (2, 2)), (1, (2, 1)), (1, (3, 5))]
        assert rows(db, "over_late") == [(2,)]
        db.sql("INSERT INTO t VALUES (4, 'four'), (5, '55')")
        db.sql("INSERT INTO g VALUES (4)")
        db.sql("REFRESH late")
        assert rows(db, "joined") == [(2, 1), (3, 5), (4, 4)]
        assert rows(db, "late") == rows(db, "over_late") == [(3,)]
        verify(db)
        with pytest.raises(HeadraceError, match="stopped"):
            db.sql(f"SELECT * FROM joined AS OF EPOCH {before}")
    with connected(directory, spark) as db:  # what failed is kept, and serves once it is repaired
        with pytest.raises(HeadraceError, match="the candidate of v has stopped") as caught:
            db.sql("SWAP VIEW v")
        assert "REPAIR v" in str(caught.value.hint)
        assert ("the candidate of v", "stopped") in [r[:2] for r in db.sql("SHOW DIRTY").fetchall()]  # type: ignore[union-attr]
        db.sql("DELETE FROM t WHERE k IN (3, 4)")
        assert [row[0] for row in db.sql("REPAIR v").fetchall()] == ["the candidate of v"]  # type: ignore[union-attr]
        db.sql("SWAP VIEW v")
        assert rows(db, "v") == [(1, 1), (2, 2), (5, 55)]
        verify(db)


def test_a_stopped_view_under_others_can_be_given_another_query(db: headrace.Database) -> None:
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {FAILS}")
    id_ = db.parts.reader.catalog.resolve("v").id
    stop(db)
    with pytest.raises(HeadraceError, match="cannot be cast"):
        db.sql("REBUILD VIEW v")
    said = str(
        db.sql("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k, length(txt) + k AS n FROM t")
    )
    assert "; joined: rebuilt in epoch" in said
    assert db.parts.reader.catalog.resolve("v").id == id_
    assert rows(db, "joined") == [(2, 3), (3, 8)]
    verify(db)
    # One with other columns takes its place together with what is above; what fails itself stays.
    db.sql("DROP SINK s")
    db.sql("DROP VIEW late CASCADE")
    db.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM joined")
    db.sql("CREATE MATERIALIZED VIEW half AS SELECT k, CAST(concat('1', n) AS TINYINT) AS n FROM v")
    db.sql("DELETE FROM t WHERE k = 3")
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {FAILS}")
    db.sql("INSERT INTO t VALUES (2, '900')")
    db.flush()
    with pytest.raises(HeadraceError, match='view "half" stopped'):
        db.sql("SELECT * FROM half")
    db.sql("INSERT INTO t VALUES (3, 'three')")
    db.flush()
    with pytest.raises(HeadraceError, match='view "v" stopped'):
        db.sql("SELECT * FROM v")
    with pytest.raises(HeadraceError, match='"half" cannot be computed again'):
        db.sql("ALTER MATERIALIZED VIEW v AS SELECT k, length(txt) + 999 AS n, txt FROM t")
    said = str(
        db.sql("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k, length(txt) + 999 AS n FROM t")
    )
    assert "; joined: rebuilt in epoch" in said
    assert "; half: still stopped: " in said
    assert rows(db, "total") == [(2006,)]
    db.sql("ALTER MATERIALIZED VIEW v AS SELECT k, length(txt) AS n, txt FROM t")
    assert rows(db, "half") == [(1, 11), (2, 13), (3, 15)]
    assert rows(db, "total") == [(8,)]
    verify(db)


def test_a_stopped_view_with_other_columns_gives_its_name_back(db: headrace.Database) -> None:
    db.sql("DROP SINK s")
    db.sql("DROP VIEW late CASCADE")
    db.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM joined")
    candidate(db, WIDER)
    db.sql("SWAP VIEW v")
    stop(db)
    db.sql("ROLLBACK VIEW v")
    assert rows(db, "v") == [(1, 1), (2, 1), (3, 5)]
    assert rows(db, "joined") == [(2, 1), (3, 5)]
    assert rows(db, "total") == [(6,)]
    verify(db)
    db.sql("INSERT INTO t VALUES (3, '3')")
    db.sql("REPAIR v")
    db.sql("SWAP VIEW v")
    assert rows(db, "total") == [(5,)]
    verify(db)


def test_what_was_cut_off_after_a_rollback_stays_stopped_until_it_is_repaired(
    directory: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(directory, spark) as db:
        candidate(db, FAILS)
        db.sql("SWAP VIEW v")
        stop(db)
        monkeypatch.setattr(Rebuilds, "restart", lambda _self, _above: [])
        db.sql("ROLLBACK VIEW v")
        monkeypatch.undo()
    with connected(directory, spark) as db:
        db.sql("INSERT INTO t VALUES (4, 'four')")
        db.sql("INSERT INTO g VALUES (4)")
        assert rows(db, "v") == [(1, 1), (2, 1), (3, 5), (4, 4)]
        with pytest.raises(HeadraceError, match='"joined" has to be filled again') as caught:
            db.sql("SELECT * FROM over_late")
        assert str(caught.value.hint).startswith("REPAIR joined")
        db.sql("REPAIR joined")
        assert rows(db, "joined") == [(2, 1), (3, 5), (4, 4)]
        verify(db)


def test_a_view_that_waits_for_a_function_can_be_rolled_back(
    directory: Path, spark: SparkSession
) -> None:
    def doubled(value: int) -> int:
        return 2 * value

    with connected(directory, spark) as db:
        db.register(doubled, returns="INT", deterministic=True)
        candidate(db, "SELECT k, doubled(length(txt)) AS n FROM t")
        db.sql("SWAP VIEW v")
        assert rows(db, "joined") == [(1, 2), (2, 2)]
    with connected(directory, spark) as db:
        db.sql("INSERT INTO t VALUES (3, 'three')")
        with pytest.raises(HeadraceError, match="waits"):
            db.sql("SELECT * FROM v")
        db.sql("ROLLBACK VIEW v")
        assert rows(db, "v") == [(1, 1), (2, 1), (3, 5)]
        db.sql("INSERT INTO g VALUES (3)")
        assert rows(db, "joined") == [(1, 1), (2, 1), (3, 5)]
        verify(db)
    with connected(directory, spark) as db:
        db.register(doubled, returns="INT", deterministic=True)
        db.sql("SWAP VIEW v")
        assert rows(db, "joined") == [(1, 2), (2, 2), (3, 10)]
        verify(db)
