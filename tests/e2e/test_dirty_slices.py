"""Slices of views that are reported, shown, and recomputed from their inputs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import headrace
from headrace.algebra.spine import forget_runs, write_run
from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import EpochCommit, NewRun, RunKind
from headrace.types import rows_of

if TYPE_CHECKING:
    import numpy as np


def lose(db: headrace.Database, name: str, where: Any) -> None:
    """Have a view, and what is above it, lose the stored rows for which ``where`` is true."""
    reader, loop, ledger = db.parts.reader, db.parts.loop, db.parts.ledger
    with loop.exclusive():
        view = reader.catalog.resolve(name)
        (page,) = reader.published.spine(view, loop.directory).scan(1 << 16)
        lost: np.ndarray = page.table.to_pandas().apply(where, axis=1).to_numpy()
        file = write_run(loop.directory / "runs", page.filter(lost).negated())
        above = loop.follow({view.id: (file,)}, ledger.epochs.clock())
        run = NewRun(file, rows_of(view.id), RunKind.DELTA)
        runs = (run, *above.new_runs(RunKind.DELTA))
        ledger.commit(EpochCommit(ledger.head.epoch, uuid4().hex, runs=runs))


@pytest.fixture
def shop(db: headrace.Database) -> headrace.Database:
    db.sql(
        """
        CREATE TABLE orders (id INT PRIMARY KEY, region STRING, amount INT);
        INSERT INTO orders VALUES (1, 'EU', 10), (2, 'EU', 20), (3, 'US', 5);
        CREATE MATERIALIZED VIEW totals AS
          SELECT region, sum(amount) AS total FROM orders GROUP BY region;
        CREATE MATERIALIZED VIEW doubled AS SELECT region, total * 2 AS twice FROM totals;
        CREATE MATERIALIZED VIEW summed AS SELECT sum(total) AS total FROM totals;
        """
    )
    return db


def listed(db: headrace.Database) -> list[tuple[Any, ...]]:
    text = "SELECT table_name, condition, repair, state FROM information_schema.dirty"
    return db.sql(text).fetchall()


@pytest.mark.long
def test_wrong_rows_that_are_reported_are_replaced_with_all_above_them(shop) -> None:
    lose(shop, "totals", lambda row: row["region"] == "EU")
    assert shop.sql("SELECT * FROM summed").fetchall() == [(5,)]
    with shop.subscribe("summed") as followed:
        assert [change.row["total"] for change in followed.poll(10) or []] == [5]
        said = shop.sql("INVALIDATE VIEW totals WHERE region = 'EU' BECAUSE 'rows are missing'")
        assert "doubled, summed (all rows)" in said.message
        assert listed(shop) == [
            ("totals", "region = 'EU'", "replay", "open"),
            ("doubled", "region = 'EU'", "deltas", "open"),
            ("summed", None, "deltas", "open"),
        ]
        shop.sql("INSERT INTO orders VALUES (4, 'US', 1)")
        (done,) = shop.sql("REPAIR VIEW summed").fetchall()
        assert done[:2] == ("totals", "dirty: invalidated, region = 'EU'")
        changes = {c.row["total"]: c.weight for c in followed.poll(10) or []}
        assert (changes[5], changes[36]) == (-1, 1)
    assert listed(shop) == []
    assert sorted(shop.sql("SELECT * FROM totals").fetchall()) == [("EU", 30), ("US", 6)]
    assert {row[3] for row in shop.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_what_is_read_as_it_was_says_what_was_known_to_be_dirty_then(shop) -> None:
    before = shop.last_epoch()
    shop.sql("INSERT INTO orders VALUES (4, 'US', 1)")
    shop.flush()
    marked = shop.last_epoch()
    shop.sql("INVALIDATE VIEW totals WHERE region = 'EU' BECAUSE 'x'")
    shop.sql("INSERT INTO orders VALUES (5, 'US', 1)")
    for as_of, dirty in (
        ("", True),
        (f" AS OF EPOCH {marked}", True),
        (f" AS OF EPOCH {before}", False),
    ):
        for query in ("SELECT * FROM totals", "SELECT region, total + 0 AS x FROM totals"):
            found = shop.sql(query + as_of).freshness.dirty
            assert found == (("totals",) if dirty else ()), (query, as_of)


@pytest.mark.long
def test_a_view_that_is_dirty_and_damaged_is_rebuilt_with_what_reads_it(shop) -> None:
    lose(shop, "totals", lambda row: row["region"] == "EU")
    shop.sql("CREATE INDEX by_total ON totals (total)")
    shop.sql("INVALIDATE VIEW totals WHERE region = 'EU' BECAUSE 'rows are missing'")
    view = shop.parts.reader.catalog.resolve("totals")
    for run in shop.parts.ledger.spines.runs(rows_of(view.id)):
        path = shop.directory / "runs" / run.file.pack
        path.write_bytes(path.read_bytes()[:-9])
    forget_runs()
    done = {name: did for name, _, did in shop.sql("REPAIR").fetchall()}
    assert {"totals", "doubled", "summed"} <= done.keys()
    assert listed(shop) == []
    assert sorted(shop.sql("SELECT * FROM totals").fetchall()) == [("EU", 30), ("US", 5)]
    assert shop.sql("SELECT * FROM summed").fetchall() == [(35,)]
    assert shop.sql("SELECT region FROM totals WHERE total = 30").fetchall() == [("EU",)]
    assert {row[3] for row in shop.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_what_a_refresh_has_to_read_is_dirty_until_then(shop) -> None:
    shop.sql("""
        CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS
            SELECT max(total) AS m FROM totals;
        CREATE MATERIALIZED VIEW over AS SELECT m + 1 AS m FROM late
    """)
    shop.sql("INVALIDATE VIEW totals WHERE region = 'EU' BECAUSE 'x'")
    assert [row[0] for row in shop.sql("REPAIR").fetchall()] == ["totals", "late", "over"]
    waits = "still dirty: REFRESH late reads what was repaired below"
    found = [("late", "dirty: invalidated", waits), ("over", "dirty: invalidated", waits)]
    assert shop.sql("REPAIR").fetchall() == found
    assert shop.sql("REPAIR VIEW late").fetchall() == found[:1]
    assert shop.sql("REPAIR VIEW totals").message.startswith("nothing is damaged or dirty")
    shop.sql("REFRESH late")
    assert listed(shop) == []
    assert shop.sql("REPAIR").message == "nothing is damaged or dirty, and no view has stopped"


@pytest.mark.long
def test_show_dirty_says_what_why_and_how_it_is_repaired(shop) -> None:
    statement = (
        "INVALIDATE VIEW totals WHERE total > 7 SINCE TIMESTAMP '2026-01-31 12:00:00' BECAUSE 'x'"
    )
    shop.sql(statement)
    shown = shop.sql("SHOW DIRTY FOR totals")
    (row,) = (dict(zip(shown.columns, each, strict=True)) for each in shown.fetchall())
    assert row["slice"] == "WHERE total > 7 SINCE TIMESTAMP '2026-01-31 12:00:00'"
    assert (row["cause"], row["origin"]) == ("invalidated", statement)
    assert (row["repair"], row["state"], row["rebuild_cost"]) == ("replay", "open", 3)
    assert 0 <= row["age_seconds"] < 1000
    (above, _) = [r for r in shop.sql("SHOW DIRTY").fetchall() if r[0] != "totals"]
    assert above[5] == f"{statement}, through view totals"
    # What it reads is not passed through under its name.
    assert above[2] == "SINCE TIMESTAMP '2026-01-31 12:00:00'"


def test_an_answer_says_whether_its_rows_are_dirty(shop) -> None:
    def dirty(query: str) -> tuple[str, ...]:
        freshness = shop.sql(query).freshness
        assert freshness is not None
        return freshness.dirty

    shop.sql("CREATE VIEW plain AS SELECT * FROM totals")
    assert dirty("SELECT * FROM totals") == ()
    shop.sql("INVALIDATE VIEW totals WHERE region = 'EU' BECAUSE 'x'")
    assert dirty("SELECT * FROM totals WHERE region = 'EU'") == ("totals",)
    assert dirty("SELECT total FROM totals WHERE region = 'US'") == ()
    assert dirty("SELECT * FROM totals WHERE region = 'none'") == ("totals",), "it may lack"
    assert dirty("SELECT * FROM totals") == ("totals",)
    assert dirty("SELECT count(*) FROM plain") == ("totals",)
    assert dirty("SELECT * FROM totals JOIN doubled USING (region)") == ("doubled", "totals")
    assert dirty("SELECT * FROM orders") == ()
    shop.sql("REPAIR totals")
    assert dirty("SELECT count(*) FROM plain") == ()


NO_SLICES = [
    ("WHERE nothing = 1", 'column "nothing" does not exist'),
    ("WHERE region IN (SELECT region FROM orders)", "a subquery in a slice"),
    ("WHERE rand() > 0.5", "rand"),
    ("WHERE current_date() > DATE '2026-01-01'", "reads the clock"),
    ("SINCE NULL", "SINCE is NULL"),
    ("SINCE 'soon'", "soon"),
]


def test_what_is_no_slice_is_refused_at_its_place(shop) -> None:
    for clause, words in NO_SLICES:
        with pytest.raises(HeadraceError, match=words) as caught:
            shop.sql(f"INVALIDATE VIEW totals {clause} BECAUSE 'x'")
        assert caught.value.span is not None, clause
        assert caught.value.span.text.startswith("INVALIDATE VIEW totals")
        assert caught.value.span.start > len("INVALIDATE VIEW totals ")
    assert listed(shop) == []


@pytest.mark.long
def test_only_materialized_views_are_invalidated(shop) -> None:
    shop.sql("CREATE VIEW plain AS SELECT * FROM orders")
    for name in ("orders", "plain"):
        with pytest.raises(HeadraceError, match="not a materialized view") as caught:
            shop.sql(f"INVALIDATE VIEW {name} BECAUSE 'x'")
        assert caught.value.code is Code.INVALID


@pytest.mark.long
def test_a_view_that_is_replaced_or_dropped_has_no_dirty_slices(shop) -> None:
    shop.sql("INVALIDATE VIEW totals BECAUSE 'x'")
    shop.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW totals AS"
        " SELECT region, sum(amount) AS total FROM orders GROUP BY region"
    )
    assert listed(shop) == [], "it was computed anew, and those above have followed"
    shop.sql("INVALIDATE VIEW totals BECAUSE 'y'; DROP MATERIALIZED VIEW totals CASCADE")
    assert listed(shop) == []


def test_slices_are_repaired_in_the_background_also_after_a_restart(tmp_path, spark) -> None:
    settings = {"spark": spark, "partitions": 2}
    with headrace.connect(tmp_path / "d", continuous=False, **settings) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT); INSERT INTO t VALUES (1, 1), (2, 1)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
        lose(db, "v", lambda _: True)
        db.sql("INVALIDATE VIEW v BECAUSE 'x'")
    with headrace.connect(tmp_path / "d", repair="manual", **settings) as db:
        assert db.sql("SELECT * FROM v").fetchall() == []
    with headrace.connect(tmp_path / "d", **settings) as db:
        until = time.monotonic() + 60
        while listed(db) and time.monotonic() < until:
            time.sleep(0.05)
        assert db.sql("SELECT * FROM v").fetchall() == [(1, 2)]
        assert listed(db) == []


@pytest.mark.long
def test_a_version_is_listed_until_the_epoch_that_carries_it(db) -> None:
    db.sql(
        """
        CREATE TABLE rates (region STRING, since TIMESTAMP, rate INT, PRIMARY KEY (region))
          WITH (effective_from = 'since');
        CREATE STREAM sales (region STRING, amount INT, at TIMESTAMP);
        INSERT INTO rates VALUES ('EU', TIMESTAMP '2026-01-01 00:00:00', 10);
        INSERT INTO sales VALUES ('EU', 7, TIMESTAMP '2026-01-05 00:00:00');
        CREATE MATERIALIZED VIEW due AS
          SELECT r.region, s.amount * r.rate AS due FROM sales s
          JOIN rates FOR SYSTEM_TIME AS OF s.at AS r ON r.region = s.region;
        CREATE MATERIALIZED VIEW whole AS SELECT sum(due) AS due FROM due;
        CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS SELECT region FROM due;
        """
    )
    assert db.sql("SELECT * FROM whole").fetchall() == [(70,)]
    assert listed(db) == []
    db.sql("INSERT INTO rates VALUES ('EU', TIMESTAMP '2026-01-03 00:00:00', 15)")
    below, above = db.sql("SHOW DIRTY").fetchall()
    assert below[:3] == ("due", "version", "WHERE (`region` IN ('EU'))")
    assert below[4] < 1000
    words = "table rates, versions (`region` IN ('EU')) from 2026-01-03 00:00:00+00:00 on"
    assert (below[5], below[6], below[9]) == (words, "deltas", "open")
    assert above[:3] == ("whole", "version", "")
    assert above[5] == f"{words}, through view due"
    assert [row[0] for row in listed(db)] == ["due", "whole"]
    db.flush()
    assert listed(db) == []
    assert db.sql("SELECT * FROM whole").fetchall() == [(105,)]
