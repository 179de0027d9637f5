"""REPLAY: slices of views, by conditions and by time; EXPLAIN REPLAY; what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from headrace.storage.log import open_segment, segments
from replaying import emptied, replay, stored

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    import headrace
    from headrace.storage.ledger import SegmentFile

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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.spark
def test_a_time_is_a_condition_on_the_rows_that_events_since_then_changed(
    db: headrace.Database,
) -> None:
    by_key, by_hour = plan(db, f"totals SINCE {NOON}"), plan(db, f"hourly SINCE {NOON}")
    assert by_key[1].endswith("where (k = 1)")
    assert by_hour[1].endswith(">= TIMESTAMP '2026-01-01 12:00:00')")
    above = plan(db, f"above SINCE {NOON}")[-1]
    assert above == "SINCE does not narrow it: rows of view totals have no event time"
    db.sql(
        "CREATE STREAM u (id BIGINT, at TIMESTAMP); CREATE MATERIALIZED VIEW w AS SELECT * FROM u"
    )
    *_, untimed = plan(db, f"w WHERE id = 99 SINCE {NOON}")
    assert untimed == (
        "SINCE does not narrow it: stream u has no event time;"
        " it is declared by WATERMARK FOR at AS at when the stream is created"
    )
    assert "id = 99)" in "".join(plan(db, "w WHERE id = 99")), "as one writes it, not 99L"
    assert emptied(db, "hourly")
    done = db.sql(f"REPLAY VIEW hourly SINCE {NOON}")
    assert done.message == "1 row of view hourly changed; 1 of 3 rows were read"
    assert len(db.sql("SELECT * FROM hourly").fetchall()) == 1
    replay(db, "hourly")
    assert sum(rows.rows for rows in stored(db, "hourly").values()) == 6


@pytest.mark.spark
def test_a_replay_opens_only_segments_that_may_hold_its_slice(
    db: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = datetime(2026, 1, 2, tzinfo=UTC)
    for i in range(60):
        db.insert("s", [(100 + i % 20, i, start + timedelta(minutes=10 * i))])
    db.flush()
    opened: set[object] = set()

    def recorded(directory: Path, segment: SegmentFile) -> pa.Table:
        opened.add((segment.name, segment.position))
        return open_segment(directory, segment)

    monkeypatch.setattr(segments, "open_segment", recorded)
    for text, rows in [
        ("totals WHERE k = 107", 3),
        ("hourly WHERE h = TIMESTAMP '2026-01-02 04:00:00'", 6),
        ("hourly WHERE h < TIMESTAMP '2026-01-02 00:00:00'", 9),
    ]:
        opened.clear()
        done = db.sql(f"REPLAY VIEW {text}").message
        assert done == f"0 rows of view {text.split()[0]} changed; {rows} of 63 rows were read"
        assert len(opened) <= rows, text


@pytest.mark.spark
def test_verify_finds_what_differs_among_views_that_share_what_it_reads(
    db: headrace.Database,
) -> None:
    assert emptied(db, "hourly", "x = 20")
    found = {name: verdict for name, *_, verdict in db.sql("VERIFY").fetchall()}
    assert found.pop("hourly").startswith("differs")
    assert {*found.values()} == {"equal to batch"}


@pytest.mark.spark
def test_what_cannot_be_replayed_is_refused_at_its_place(db: headrace.Database) -> None:
    wrong = refused(db, "REPLAY VIEW totals WHERE kk = 1")
    assert (wrong.code, wrong.span.source) == (Code.INVALID, "kk")
    assert refused(db, "REPLAY VIEW s").primary == '"s" is a stream, not a materialized view'
    assert refused(db, "REPLAY VIEW totals WHERE now() > NOW()").code is Code.UNSUPPORTED
    assert refused(db, "REPLAY VIEW totals WHERE k IN (SELECT k FROM s)").code is Code.UNSUPPORTED
    lines = plan(db, "totals WHERE x > 3")
    assert lines[-1] == "(x > 3): it is computed from the rows of a group"
    assert db.sql("REPLAY VIEW totals WHERE k / 0 = 1").message.startswith("0 rows")


@pytest.fixture
def reserves(db: headrace.Database) -> headrace.Database:
    db.sql(
        """
        CREATE TABLE policies (segment STRING, since TIMESTAMP, rate DECIMAL(4,2),
          PRIMARY KEY (segment)) WITH (effective_from = 'since');
        CREATE TABLE merchants (id INT PRIMARY KEY, segment STRING);
        CREATE STREAM events (merchant INT, amount INT, kind STRING, at TIMESTAMP);
        INSERT INTO policies VALUES ('a', TIMESTAMP '2026-01-01 00:00:00', 0.10),
          ('a', TIMESTAMP '2026-01-05 00:00:00', 0.15),
          ('b', TIMESTAMP '2026-01-01 00:00:00', 0.20);
        INSERT INTO merchants VALUES (1, 'a'), (2, 'b'), (3, 'c');
        INSERT INTO events VALUES (1, 100, 'capture', TIMESTAMP '2026-01-02 00:00:00'),
          (1, 50, 'refund', TIMESTAMP '2026-01-03 00:00:00'),
          (2, 70, 'capture', TIMESTAMP '2026-01-03 00:00:00'),
          (3, 70, 'refund', TIMESTAMP '2026-01-03 00:00:00'),
          (4, 10, 'capture', TIMESTAMP '2026-01-03 00:00:00');
        CREATE MATERIALIZED VIEW reserves AS
          SELECT e.merchant, sum(e.amount * p.rate) AS reserve
          FROM events e JOIN merchants m ON e.merchant = m.id
          JOIN policies FOR SYSTEM_TIME AS OF e.at AS p ON p.segment = m.segment
          WHERE e.kind = 'capture' GROUP BY e.merchant HAVING sum(e.amount) > 80;
        """
    )
    return db


@pytest.mark.long
@pytest.mark.spark
def test_a_row_is_explained_by_the_events_and_versions_that_made_it(
    reserves: headrace.Database,
) -> None:
    def explained(merchant: int) -> list[str]:
        found = reserves.sql(f"EXPLAIN ROW reserves WHERE merchant = {merchant}").fetchall()
        return [line for (line,) in found]

    lines = explained(1)
    assert lines[0].startswith("-- 1 row of view reserves")
    sources = lines[lines.index("-- 1 of stream events") :]
    assert sources == [
        "-- 1 of stream events",
        "offset 0: merchant = 1, amount = 100, kind = 'capture', at = TIMESTAMP '2026-01-02 00:00:00'",
        "",
        "-- 1 of table merchants",
        "id = 1, segment = 'a'",
        "",
        "-- 1 of table policies",
        "segment = 'a', since = TIMESTAMP '2026-01-01 00:00:00', rate = 0.10",
    ]
    why = {n: explained(n)[1] for n in (2, 3, 4, 5)}
    assert why[2].startswith("rows reach it, but none passes Filter")
    assert "80" in why[2]
    assert why[3].startswith("rows reach it, but none passes Filter")
    assert "capture" in why[3]
    assert why[4].startswith("no row that reaches it has a partner: InnerJoin on e.merchant")
    assert why[5] == "events has no row where (merchant = 5)"
    wrong = refused(reserves, "EXPLAIN ROW reserves WHERE merchants = 1")
    assert wrong.span.source == "merchants"


@pytest.fixture
def shop(db: headrace.Database) -> headrace.Database:
    db.sql(
        """
        CREATE STREAM o (k INT, v INT);
        CREATE TABLE t (k INT PRIMARY KEY, seg STRING);
        INSERT INTO o VALUES (1, 5), (5, 7);
        INSERT INTO t VALUES (1, 'x');
        """
    )
    return db


def row(db: headrace.Database, text: str) -> list[str]:
    return [line for (line,) in db.sql(f"EXPLAIN ROW {text}").fetchall()]


def listed(lines: list[str], heading: str) -> list[str]:
    """Return the lines below a heading."""
    at = lines.index(heading) + 1
    return [*lines[at:], ""][: [*lines[at:], ""].index("")]


OF_GROUP = "GroupAggregate by (o.k): sum(o.v): it is computed from the rows of a group"


@pytest.mark.long
@pytest.mark.spark
def test_only_rows_that_meet_the_whole_condition_are_explained(shop: headrace.Database) -> None:
    shop.sql(
        """
        CREATE MATERIALIZED VIEW ag AS SELECT k, sum(v) AS sv FROM o GROUP BY k;
        CREATE MATERIALIZED VIEW sums AS SELECT sum(v) AS sv FROM o GROUP BY k;
        """
    )
    none = row(shop, "ag WHERE sv = 99")
    assert none[0].startswith("-- No row of view ag")
    assert none[1] == "no row of GroupAggregate by (o.k): sum(o.v) meets (sv = 99)"
    why = "-- Why rows below may be those of other rows of the view too"
    assert listed(none, why) == [f"(sv = 99) is not applied below {OF_GROUP}"]

    one = row(shop, "ag WHERE sv = 5")
    assert one[0].startswith("-- 1 row of view ag")
    assert "-- Of the rows with the keys that were found: (`k` IN (1))" in one
    assert listed(one, "-- 1 of stream o") == ["offset 0: k = 1, v = 5"]
    assert why not in one

    unknown = row(shop, "sums WHERE sv = 5")  # the key is no column of it
    assert unknown[0].startswith("-- 1 row of view sums")
    assert listed(unknown, why) == [f"(sv = 5) is not applied below {OF_GROUP}"]
    assert len(listed(unknown, "-- 2 of stream o")) == 2

    wrong = refused(shop, "EXPLAIN ROW ag WHERE ag.k = 1")
    assert wrong.hint == "There are: k, sv."


@pytest.mark.long
@pytest.mark.spark
def test_each_kind_of_join_says_why_it_has_no_row(shop: headrace.Database) -> None:
    shop.sql(
        """
        CREATE MATERIALIZED VIEW lj AS SELECT o.k, o.v, t.seg FROM o LEFT JOIN t ON o.k = t.k;
        CREATE MATERIALIZED VIEW aj AS SELECT * FROM o LEFT ANTI JOIN t ON o.k = t.k;
        CREATE MATERIALIZED VIEW sj AS SELECT * FROM o LEFT SEMI JOIN t ON o.k = t.k;
        CREATE MATERIALIZED VIEW ex AS SELECT k FROM o EXCEPT SELECT k FROM t;
        """
    )
    alone = row(shop, "lj WHERE k = 5")
    assert alone[0].startswith("-- 1 row of view lj")
    assert listed(alone, "-- 1 of stream o") == ["offset 1: k = 5, v = 7"]
    assert listed(alone, "-- 0 of table t") == []
    paired = row(shop, "lj WHERE seg = 'x'")
    assert listed(paired, "-- 1 of table t") == ["k = 1, seg = 'x'"]
    assert row(shop, "lj WHERE seg = 'y'")[1].startswith("no joined row meets (t.seg = 'y'): Left")

    found = "each row that reaches it has a partner among the rows of t: AntiJoin on "
    for view in ("aj", "ex"):
        lines = row(shop, f"{view} WHERE k = 1")
        assert lines[1].startswith(found)
        assert listed(lines, "-- 1 of table t") == ["k = 1"]
    others = row(shop, "aj WHERE v > 0")
    assert listed(others, "-- 1 of stream o") == ["offset 1: k = 5, v = 7"]
    assert listed(others, "-- 0 of table t") == []
    assert listed(row(shop, "sj WHERE v = 5"), "-- 1 of table t") == ["k = 1"]
    assert row(shop, "sj WHERE v = 7")[1].startswith("no row that reaches it has a partner:")


@pytest.mark.long
@pytest.mark.spark
def test_each_empty_input_of_a_union_and_each_call_is_named(shop: headrace.Database) -> None:

    @shop.register(returns="INT", deterministic=True)
    def twice(x: int | None) -> int | None:
        return None if x is None else 2 * x

    shop.sql(
        """
        INSERT INTO o VALUES (7, NULL);
        CREATE MATERIALIZED VIEW un AS
          SELECT k, v FROM o WHERE v > 100 UNION ALL SELECT k, 1 FROM t;
        CREATE MATERIALIZED VIEW py AS SELECT k, v, twice(v) AS w FROM o;
        """
    )
    first, second = row(shop, "un WHERE k = 5")[1:3]
    assert first.startswith("rows reach it, but none passes Filter")
    assert first.endswith("(o.v > 100))")
    assert second == "t has no row where (t.k = 5)"
    assert row(shop, "py WHERE w = 3")[1] == "no row of Python twice(o.v) meets (twice(o.v) = 3)"
    assert "offset 2: k = 7, v = NULL" in row(shop, "py WHERE k = 7")
