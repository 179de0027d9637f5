"""REPLAY: slices of views, by conditions and by time; EXPLAIN REPLAY; what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from replaying import emptied, replay, stored

if TYPE_CHECKING:
    import headrace

NOON = "TIMESTAMP '2026-01-01 12:00:00'"


@pytest.fixture
def db(db: headrace.Database) -> headrace.Database:
    db.sql(
        """
        CREATE STREAM s (k INT, x BIGINT, at TIMESTAMP,
          WATERMARK FOR at AS at - INTERVAL '1' HOUR);
        INSERT INTO s VALUES (1, 10, TIMESTAMP '2026-01-01 10:30:00'),
          (2, 20, TIMESTAMP '2026-01-01 11:30:00'), (1, 30, TIMESTAMP '2026-01-01 12:30:00');
        CREATE MATERIALIZED VIEW totals AS SELECT k, sum(x) AS x FROM s GROUP BY k;
        CREATE MATERIALIZED VIEW hourly AS
          SELECT window.start AS h, sum(x) AS x FROM s GROUP BY window(at, '1 hour');
        CREATE MATERIALIZED VIEW above AS SELECT x, count(*) AS n FROM totals GROUP BY x;
        """
    )
    return db


def plan(db: headrace.Database, text: str) -> list[str]:
    return [line for (line,) in db.sql(f"EXPLAIN REPLAY VIEW {text}").fetchall()]


def refused(db: headrace.Database, text: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        db.sql(text)
    return caught.value


@pytest.mark.spark
def test_a_slice_is_replayed_with_all_above_it(db: headrace.Database) -> None:
    right = db.sql("SELECT * FROM above ORDER BY x").fetchall()
    assert right == [(20, 1), (40, 1)]
    assert emptied(db, "totals", "k = 1")
    assert db.sql("SELECT * FROM above").fetchall() == [(20, 1)]
    db.sql("INVALIDATE VIEW totals WHERE k = 1 BECAUSE 'rows were lost'")
    with db.sql("SUBSCRIBE totals") as changes:
        done = db.sql("REPLAY VIEW totals WHERE k = 1")
        seen = [m for m in changes.poll(10.0) if m]
    assert done.message == "1 row of view totals changed; 2 of 3 rows were read"
    assert "40" in str(seen)
    assert db.sql("SELECT * FROM above ORDER BY x").fetchall() == right
    assert db.sql("SHOW DIRTY").fetchall() == []


@pytest.mark.spark
def test_a_time_is_a_condition_on_the_rows_that_events_since_then_changed(
    db: headrace.Database,
) -> None:
    by_key, by_hour = plan(db, f"totals SINCE {NOON}"), plan(db, f"hourly SINCE {NOON}")
    assert by_key[1].endswith("where (k = 1)")
    assert by_hour[1].endswith(">= TIMESTAMP '2026-01-01 12:00:00')")
    assert plan(db, f"above SINCE {NOON}")[-1].startswith("SINCE does not narrow it")
    assert emptied(db, "hourly")
    done = db.sql(f"REPLAY VIEW hourly SINCE {NOON}")
    assert done.message == "1 row of view hourly changed; 1 of 3 rows were read"
    assert len(db.sql("SELECT * FROM hourly").fetchall()) == 1
    replay(db, "hourly")
    assert sum(rows.rows for rows in stored(db, "hourly").values()) == 6


@pytest.mark.spark
def test_what_cannot_be_replayed_is_refused_at_its_place(db: headrace.Database) -> None:
    wrong = refused(db, "REPLAY VIEW totals WHERE kk = 1")
    assert (wrong.code, wrong.span.source) == (Code.INVALID, "kk")
    assert refused(db, "REPLAY VIEW s").primary == '"s" is a stream, not a materialized view'
    assert refused(db, "REPLAY VIEW totals WHERE now() > NOW()").code is Code.UNSUPPORTED
    assert refused(db, "REPLAY VIEW totals WHERE k IN (SELECT k FROM s)").code is Code.UNSUPPORTED
    lines = plan(db, "totals WHERE x > 3")
    assert lines[-1] == "(x > 3L): it is computed from the rows of a group"
    assert db.sql("REPLAY VIEW totals WHERE k / 0 = 1").message.startswith("0 rows")
