"""``retention`` of a stream: views keep what they made of events that are gone, and nothing lies.

What needs these events says so; what does not goes on, and is right.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.interfaces.database import Database

MARCH = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1_000_000)
NOT_KEPT = "the first 2 events of stream s are no longer kept"


def opened(directory: Path, spark) -> Database:
    return headrace.connect(
        directory, spark=spark, continuous=False, partitions=2, clock=lambda: MARCH
    )


@pytest.fixture
def cut(tmp_path: Path, spark) -> Iterator[Database]:
    """A database whose stream has lost its first two events, which its views have seen."""
    db = opened(tmp_path / "d", spark)
    db.sql(
        """
        CREATE STREAM s (k INT, v INT, at TIMESTAMP, WATERMARK FOR at AS at) DEDUPLICATE ON (k, v)
          WITH (retention = '30 days');
        CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS v FROM s GROUP BY k;
        CREATE MATERIALIZED VIEW days AS SELECT date(at) AS day, sum(v) AS v FROM s GROUP BY 1;
        CREATE MATERIALIZED VIEW most AS SELECT max(v) AS v FROM sums;
        INSERT INTO s VALUES (1, 1, TIMESTAMP '2026-01-01'), (2, 5, TIMESTAMP '2026-01-10');
        INSERT INTO s VALUES (1, 2, TIMESTAMP '2026-02-20'), (3, 3, TIMESTAMP '2026-02-25');
        """
    )
    db.sql("FLUSH")
    db.compact()
    yield db
    db.close()


def rows(db: Database, query: str) -> list[tuple[object, ...]]:
    return sorted(db.sql(query).fetchall())


def refused(db: Database, statement: str) -> HeadraceError:
    with pytest.raises(HeadraceError, match="are no longer kept") as caught:
        db.sql(statement)
    assert caught.value.code is Code.CONFLICT
    assert "earliest" in (caught.value.hint or "")
    return caught.value


@pytest.mark.long
def test_a_slice_that_cannot_be_recomputed_is_not_marked_dirty(cut: Database) -> None:
    error = refused(cut, "INVALIDATE VIEW sums WHERE k = 1 BECAUSE 'it looks odd'")
    assert error.primary == NOT_KEPT.replace("stream s", 'stream "s"')
    assert cut.sql("SHOW DIRTY").fetchall() == []
    cut.sql("INVALIDATE VIEW days WHERE day = DATE '2026-02-20' BECAUSE 'it looks odd'; REPAIR")
    assert cut.sql("SHOW DIRTY").fetchall() == []
    assert "is compared with" in (refused(cut, "RECONCILE VIEW sums").hint or "")


@pytest.mark.long
def test_views_keep_what_events_made_that_are_gone(cut: Database, spark) -> None:
    assert rows(cut, "SELECT k, v FROM s") == [(1, 2), (3, 3)]
    assert rows(cut, "SELECT * FROM sums") == [(1, 3), (2, 5), (3, 3)]
    verdicts = {name: verdict for name, _, _, verdict in cut.sql("VERIFY").fetchall()}
    assert verdicts["sums"] == verdicts["days"] == f"could not be checked: {NOT_KEPT}"
    assert verdicts["most"] == (
        "equal to batch, by the stored rows of sums, some of whose events are no longer kept"
    )
    # Deltas and corrections of what is left go on, and an event that is gone is not taken again.
    assert cut.sql("INSERT INTO s VALUES (1, 1, TIMESTAMP '2026-01-01')").message.startswith("0 ")
    cut.sql("CORRECT STREAM s REPLACE SET v = 10 WHERE k = 1 BECAUSE 'it was wrong'")
    cut.sql("CORRECT STREAM s VOID WHERE k = 2 BECAUSE 'it is not there'")
    assert rows(cut, "SELECT * FROM sums") == [(1, 11), (2, 5), (3, 3)]
    directory = cut.directory
    cut.close()
    db = opened(directory, spark)
    assert db.sql("INSERT INTO s VALUES (2, 5, TIMESTAMP '2026-02-10')").message.startswith("0 ")
    db.sql("INSERT INTO s VALUES (3, 4, TIMESTAMP '2026-02-27')")
    assert rows(db, "SELECT * FROM sums") == [(1, 11), (2, 5), (3, 7)]
    assert rows(db, "SELECT * FROM most") == [(11,)]
    db.close()


@pytest.mark.long
def test_what_would_read_events_that_are_gone_is_refused(cut: Database) -> None:
    refused(cut, "CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s")
    refused(
        cut,
        "CREATE OR REPLACE MATERIALIZED VIEW sums AS SELECT k, sum(v + 0) AS v FROM s GROUP BY k",
    )
    refused(cut, "REPLAY VIEW sums")
    refused(cut, "REPLAY VIEW sums WHERE k = 2")
    refused(cut, "REPLAY VIEW days WHERE day = DATE '2026-01-10'")
    refused(cut, "EXPLAIN ROW sums WHERE k = 1")
    refused(cut, "RECONCILE VIEW sums")
    assert rows(cut, "SELECT * FROM sums") == [(1, 3), (2, 5), (3, 3)]
    # A view that relies on that no event changes has to be rebuilt before one does.
    cut.sql(
        """
        CREATE STREAM p (k INT, at TIMESTAMP, WATERMARK FOR at AS at) WITH (retention = '30 days');
        CREATE MATERIALIZED VIEW top AS SELECT max(k) AS k FROM p;
        INSERT INTO p VALUES (1, TIMESTAMP '2026-01-01');
        INSERT INTO p VALUES (2, TIMESTAMP '2026-02-20');
        """
    )
    cut.sql("FLUSH")
    cut.compact()
    refused(cut, "CORRECT STREAM p VOID WHERE k = 2 BECAUSE 'it was wrong'")
    assert {name for name, *_ in cut.sql("RECONCILE ALL").fetchall()} == {"most"}


@pytest.mark.long
def test_slices_that_no_such_event_is_in_are_recomputed(cut: Database) -> None:
    for statement in (
        "REPLAY VIEW sums WHERE k = 3",
        "REPLAY VIEW days WHERE day >= DATE '2026-02-01'",
        "REPLAY VIEW days SINCE TIMESTAMP '2026-02-15'",
    ):
        assert cut.sql(statement).message.startswith("0 rows of view"), statement
    explained = [line for (line,) in cut.sql("EXPLAIN ROW sums WHERE k = 3").fetchall()]
    assert any(line.startswith("offset 3: ") for line in explained), explained


@pytest.mark.long
def test_what_a_correction_has_made_of_an_event_that_is_gone_is_not_lost(tmp_path, spark) -> None:
    db = opened(tmp_path / "d", spark)
    db.sql(
        """
        CREATE STREAM s (k INT, v INT, at TIMESTAMP, WATERMARK FOR at AS at)
          WITH (retention = '30 days');
        CREATE MATERIALIZED VIEW each AS SELECT k, v FROM s;
        INSERT INTO s VALUES (1, 1, TIMESTAMP '2026-01-01');
        INSERT INTO s VALUES (2, 2, TIMESTAMP '2026-02-25');
        CORRECT STREAM s REPLACE SET v = 1000, k = 9 WHERE k = 1;
        """
    )
    db.flush()
    db.compact()
    assert rows(db, "SELECT k, v FROM s") == [(2, 2)]
    refused(db, "REPLAY VIEW each WHERE v = 1000")
    refused(db, "REPLAY VIEW each WHERE k = 9")
    assert db.sql("REPLAY VIEW each WHERE v > 2000").message.startswith("0 rows")
    assert rows(db, "SELECT * FROM each") == [(2, 2), (9, 1000)]
    db.close()


@pytest.mark.long
def test_a_view_over_what_is_left_says_so_and_is_right(cut: Database) -> None:
    cut.sql(
        "CREATE MATERIALIZED VIEW rest WITH (since = 'earliest')"
        " AS SELECT k, max(v) AS n FROM s GROUP BY k"
    )
    cut.sql("CORRECT STREAM s VOID WHERE k = 1 BECAUSE 'it was wrong'")
    assert rows(cut, "SELECT * FROM rest") == [(3, 3)]
    assert cut.sql("VERIFY rest").fetchall()[0][3] == "equal to batch"
    altered = cut.sql("ALTER STREAM s SET (retention = '3 days')").message
    assert altered is not None
    assert "3 of 3 events, the newest of 2026-02-25 00:00:00, are no longer kept" in altered
    assert "rows that sums, days, rest made of them stay" in altered
    assert rows(cut, "SELECT * FROM rest") == [(3, 3)]
    refused(cut, "REPLAY VIEW rest")
    cut.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW rest WITH (since = 'earliest')"
        " AS SELECT k, count(*) AS n FROM s GROUP BY k"
    )
    assert rows(cut, "SELECT * FROM rest") == []
    cut.sql("INSERT INTO s VALUES (7, 7, TIMESTAMP '2026-02-28')")
    assert rows(cut, "SELECT * FROM rest") == [(7, 1)]
    assert cut.sql("VERIFY rest").fetchall()[0][3] == "equal to batch"
    cut.sql("ALTER STREAM s RESET (retention)")
    assert "RESET (retention)" in cut.sql("SHOW CREATE s").fetchall()[0][1]


@pytest.mark.long
def test_what_is_kept_is_listed(cut: Database) -> None:
    shown = cut.sql("SHOW STREAMS")
    (row,) = (dict(zip(shown.columns, each, strict=True)) for each in shown.fetchall())
    assert (row["retired"], row["changes"], row["segments"]) == (2, 2, 1)
    assert row["retention"] == "30 days"
    assert row["bytes"] > 100
    assert row["since"] is not None
    assert row["kept_for"] == ""
    cut.sql(
        "CREATE MATERIALIZED VIEW slow WITH (refresh = 'manual', since = 'earliest')"
        " AS SELECT k FROM s; INSERT INTO s VALUES (8, 8, TIMESTAMP '2026-01-02')"
    )
    said = cut.sql("ALTER STREAM s SET (retention = '1 day')").message
    assert said is not None
    assert said.endswith("; older ones are kept until slow is refreshed or repaired")
    assert cut.sql("SHOW STREAMS").fetchall()[0][-1] == "slow"
    cut.sql("REFRESH slow")
    cut.compact()
    assert cut.sql("SHOW STREAMS").fetchall()[0][4:6] == (5, 0)
    assert rows(cut, "SELECT * FROM slow") == [(1,), (3,), (8,)]


def test_events_are_deleted_by_time_and_views_follow(cut: Database) -> None:
    explained = cut.sql("EXPLAIN CHANGE DELETE FROM s WHERE at < TIMESTAMP '2026-02-22'").fetchall()
    assert {(view, path) for view, path, *_ in explained} == {
        ("sums", "deltas"),
        ("days", "deltas"),
        ("most", "deltas"),
    }
    said = cut.sql("DELETE FROM s WHERE at < TIMESTAMP '2026-02-22'").message
    assert said == "1 event voided; the first 2 are no longer kept, and stay in views"
    assert rows(cut, "SELECT * FROM sums") == [(1, 1), (2, 5), (3, 3)]
    cut.sql("ALTER STREAM s DROP PARTITION (date(at) = DATE '2026-02-25', k > 2)")
    assert rows(cut, "SELECT k FROM s") == []
    assert rows(cut, "SELECT * FROM sums") == [(1, 1), (2, 5)]
    changes = {(view, path) for _, view, path, *_ in cut.sql("SHOW CHANGES").fetchall()}
    assert changes == {("sums", "deltas"), ("days", "deltas"), ("most", "deltas")}
    cut.sql("CREATE TABLE t (k INT, v INT); INSERT INTO t VALUES (1, 1), (2, 2)")
    assert cut.sql("ALTER TABLE t DROP IF EXISTS PARTITION (k = 1)").message == "1 row deleted"
    with pytest.raises(HeadraceError, match="DELETE FROM a stream needs a condition"):
        cut.sql("DELETE FROM s")


WRONG = [
    ("CREATE STREAM x (k INT) WITH (retention = 'soon')", "is not a duration", "retention"),
    ("CREATE TABLE x (k INT) WITH (retention = '1 day')", "of a table is not", "retention"),
    ("ALTER STREAM s SET (retention = '-1 days')", "is not a duration", "retention"),
    ("ALTER STREAM s SET (retentoin = '1 day')", "cannot be altered", "retentoin"),
    ("ALTER STREAM v SET (retention = '1 day')", "not a stream", "v"),
    (
        "CREATE MATERIALIZED VIEW x WITH (since = 'now') AS SELECT k FROM s",
        "is not a value of since",
        "since",
    ),
]


def test_options_that_say_nothing_are_refused_at_their_place(db: Database) -> None:
    db.sql("CREATE STREAM s (k INT); CREATE MATERIALIZED VIEW v AS SELECT k FROM s")
    for statement, words, place in WRONG:
        with pytest.raises(HeadraceError, match=words) as caught:
            db.sql(statement)
        assert caught.value.span is not None
        assert caught.value.span.source.startswith(place)


@pytest.mark.long
def test_a_view_of_recent_events_needs_none_that_are_gone(tmp_path: Path, spark) -> None:
    now = MARCH
    db = headrace.connect(
        tmp_path / "d", spark=spark, continuous=False, partitions=2, clock=lambda: now
    )
    recent = (
        "SELECT k, count(*) AS n FROM s WHERE v > 0 AND at >= now() - INTERVAL 7 DAYS GROUP BY k"
    )
    db.sql(
        f"""
        CREATE STREAM s (k INT, v INT, at TIMESTAMP, WATERMARK FOR at AS at)
          WITH (retention = '5 days');
        CREATE MATERIALIZED VIEW week AS {recent};
        CREATE MATERIALIZED VIEW month WITH (ttl = '30 days') AS SELECT at, k FROM s;
        CREATE MATERIALIZED VIEW both AS SELECT a.k, b.n
          FROM (SELECT k FROM s WHERE at >= now() - INTERVAL 7 DAYS) a JOIN
               (SELECT k, count(*) AS n FROM s GROUP BY k) b ON a.k = b.k;
        INSERT INTO s VALUES (1, 1, TIMESTAMP '2026-02-10'), (1, 1, NULL);
        INSERT INTO s VALUES (1, 1, TIMESTAMP '2026-02-23'), (2, 1, TIMESTAMP '2026-02-22');
        INSERT INTO s VALUES (1, 1, TIMESTAMP '2026-02-28');
        """
    )
    db.flush()
    db.compact()
    assert rows(db, "SELECT k FROM s") == [(1,)]

    def verdicts() -> dict[str, str]:
        found = {name: verdict for name, _, _, verdict in db.sql("VERIFY").fetchall()}
        return {name: verdict.partition(":")[0] for name, verdict in found.items()}

    unchecked = dict.fromkeys(["week", "month", "both"], "could not be checked")
    assert verdicts() == unchecked, "events of the week are gone already"
    assert rows(db, "SELECT * FROM week") == [(1, 2), (2, 1)]
    refused(db, f"CREATE MATERIALIZED VIEW later AS {recent}")
    now += 4 * 86_400_000_000
    db.flush()
    db.compact()
    assert rows(db, "SELECT * FROM week") == [(1, 1)]
    assert verdicts() == {**unchecked, "week": "equal to batch"}
    db.sql(f"CREATE MATERIALIZED VIEW later AS {recent}")
    assert verdicts()["later"] == "equal to batch"
    assert db.sql("REPLAY VIEW week").message.startswith("0 rows of view week changed")
    now += 30 * 86_400_000_000
    db.flush()
    db.compact()
    assert verdicts() == {
        "week": "equal to batch",
        "later": "equal to batch",
        "month": "equal to batch",
        "both": "could not be checked",
    }
    db.close()
