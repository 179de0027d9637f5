"""EXPLAIN CHANGE says what a change will do to views, and leaves no trace; SHOW CHANGES keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import HeadraceError
from headrace.storage.ledger import Carried, RepairPath
from headrace.storage.ledger.dirty import MOST_CHANGES
from headrace.types import rows_of

if TYPE_CHECKING:
    import headrace
    from headrace.types import Epoch

STATEMENTS = (
    "INSERT INTO rates VALUES ('a', 15, TIMESTAMP '2026-02-08 00:00:00')",
    "INSERT INTO events VALUES (50, 'a', 7, TIMESTAMP '2026-02-02 00:00:00'), (51, 'z', 1, NULL)",
    "UPDATE rates SET percent = percent + 1 WHERE segment = 'b'",
    "DELETE FROM rates WHERE segment = 'a'",
    "CORRECT STREAM events REPLACE SET amount = 500 WHERE account < 3",
    "TRUNCATE TABLE rates",
)


@pytest.fixture
def ledgers(db: headrace.Database) -> headrace.Database:
    db.sql(
        """
        CREATE STREAM events (account INT, segment STRING, amount INT, at TIMESTAMP);
        CREATE TABLE rates (segment STRING, percent INT, since TIMESTAMP, PRIMARY KEY (segment))
          WITH (effective_from = 'since');
        INSERT INTO rates VALUES
          ('a', 10, TIMESTAMP '2026-01-01 00:00:00'), ('b', 20, TIMESTAMP '2026-01-01 00:00:00');
        INSERT INTO events SELECT id, if(id % 2 = 0, 'a', 'b'), id,
          TIMESTAMP '2026-02-01 00:00:00' + make_interval(0, 0, 0, id % 10)
          FROM (SELECT explode(sequence(0, 39)) AS id);
        CREATE MATERIALIZED VIEW rated AS SELECT e.account, e.amount, r.percent
          FROM events e JOIN rates FOR SYSTEM_TIME AS OF e.at r ON e.segment = r.segment;
        CREATE MATERIALIZED VIEW totals AS
          SELECT percent, sum(amount) AS amount FROM rated GROUP BY percent;
        CREATE OR REPLACE MATERIALIZED VIEW totals AS
          SELECT percent, sum(amount) AS amount FROM rated WHERE amount >= 0 GROUP BY percent;
        CREATE MATERIALIZED VIEW largest AS
          SELECT segment, max(amount) AS amount FROM events GROUP BY segment;
        """
    )
    return db


def explained(db: headrace.Database, statement: str) -> dict[str, dict[str, Any]]:
    found = db.sql(f"EXPLAIN CHANGE {statement}")
    rows = (dict(zip(found.columns, row, strict=True)) for row in found.fetchall())
    return {row["view"]: row for row in rows}


def changed(db: headrace.Database, after: Epoch) -> dict[str, int]:
    db.flush()
    ledger, last = db.parts.ledger, db.last_epoch()
    return {
        v.name: sum(run.file.rows for run in ledger.spines.delta_runs(rows_of(v.id), after, last))
        for v in db.parts.reader.catalog.views_in_order()
    }


def files(db: headrace.Database) -> set[str]:
    return {p.name for kind in ("log", "runs") for p in (db.directory / kind).iterdir()}


@pytest.mark.long
def test_what_is_explained_is_what_happens(ledgers: headrace.Database) -> None:
    db = ledgers
    for statement in STATEMENTS:
        there, epoch = files(db), db.last_epoch()
        said = explained(db, statement)
        assert (files(db), db.last_epoch()) == (there, epoch), "nothing is left of the trial"
        db.sql(statement)
        did = changed(db, epoch)
        for name, rows in did.items():
            if name in said and said[name]["changed"] is not None:
                assert said[name]["changed"] == rows, (statement, name)
            else:
                assert name not in said or said[name]["path"] != "deltas", (statement, name)
                assert name in said or rows == 0, (statement, name)
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_what_carries_a_change_is_decided_by_rule(ledgers: headrace.Database) -> None:
    db = ledgers
    version = explained(db, STATEMENTS[0])["rated"]
    assert version["path"] == "deltas"
    assert version["rule"].startswith("Versions in effect from 2026-02-08 00:00:00")
    assert version["rows"] > 0
    first = explained(db, "CORRECT STREAM events VOID WHERE account = 39")
    assert {name: row["path"] for name, row in first.items()} == {
        "rated": "deltas",
        "totals": "deltas",
        "largest": "rebuild",
    }
    assert first["largest"]["rows"] == first["largest"]["rebuild_rows"] == 40
    db.sql("CORRECT STREAM events VOID WHERE account = 39")
    again = explained(db, "CORRECT STREAM events VOID WHERE account = 38")
    assert {row["path"] for row in again.values()} == {"deltas"}, "later ones need no rebuild"
    slice_ = explained(db, "INVALIDATE VIEW rated WHERE account = 3 BECAUSE 'x'")
    assert {name: row["path"] for name, row in slice_.items()} == {
        "rated": "replay",
        "totals": "deltas",
    }
    db.register("doubled", lambda x: 2 * x, returns="INT", arguments=["INT"], deterministic=True)
    db.sql("CREATE MATERIALIZED VIEW calls AS SELECT doubled(percent) AS d FROM totals")
    db.sql("CREATE MATERIALIZED VIEW over AS SELECT max(d) AS d FROM calls")
    paths = {name: row["path"] for name, row in explained(db, "FUNCTION doubled").items()}
    assert paths == {"calls": "rebuild", "over": "deltas"}
    assert explained(db, "DELETE FROM rates WHERE segment = 'none'") == {}
    with pytest.raises(HeadraceError, match="expected INSERT"):
        db.sql("EXPLAIN CHANGE SHOW TABLES")


@pytest.mark.long
def test_what_is_defined_otherwise_is_explained_before(db: headrace.Database) -> None:
    db.register("doubled", lambda x: 2 * x, returns="INT", arguments=["INT"], deterministic=True)
    db.sql(
        """
        CREATE STREAM s (k INT, at TIMESTAMP, WATERMARK FOR at AS at);
        CREATE MATERIALIZED VIEW a AS SELECT k, count(*) AS n FROM s GROUP BY k;
        CREATE MATERIALIZED VIEW b AS SELECT max(n) AS n FROM a;
        CREATE MATERIALIZED VIEW c AS SELECT doubled(k) AS k FROM s;
        INSERT INTO s VALUES (1, TIMESTAMP '2020-01-01');
        INSERT INTO s VALUES (1, TIMESTAMP '2020-01-02');
        """
    )
    db.flush()
    before = (db.last_epoch(), db.sql("SHOW CHANGES").fetchall())

    def paths(statement: str) -> dict[str, str]:
        return {name: row["path"] for name, row in explained(db, statement).items()}

    assert paths("DROP STREAM s") == dict.fromkeys("sabc", "refused")
    assert paths("DROP MATERIALIZED VIEW a CASCADE") == {"a": "drop", "b": "drop"}
    assert paths("DROP FUNCTION doubled") == {"c": "refused"}
    assert paths("ALTER STREAM s ADD COLUMN v INT") == dict.fromkeys("sabc", "none")
    assert paths("ALTER MATERIALIZED VIEW b SET (refresh = 'manual')") == {"b": "none"}
    again = "CREATE OR REPLACE MATERIALIZED VIEW a AS SELECT k, 2 * count(*) AS n FROM s GROUP BY k"
    assert paths(again) == {"a": "rebuild", "b": "deltas"}
    kept = explained(db, "ALTER STREAM s SET (retention = '1 day')")
    assert kept["a"]["rule"] == (
        "keeps rows of 2 of 2 events, the newest of 2020-01-02 00:00:00,"
        " and can no longer be verified or computed again"
    )
    assert kept.keys() == {"a", "c"}
    assert before == (db.last_epoch(), db.sql("SHOW CHANGES").fetchall())
    db.sql("ALTER STREAM s SET (retention = '1 day')")
    assert paths(again) == {"a": "refused"}
    with pytest.raises(HeadraceError, match="what this statement changes is not explained"):
        db.sql("EXPLAIN CHANGE CREATE STREAM t (k INT)")
    db.sql(
        """
        CREATE STREAM r (k INT, at TIMESTAMP, WATERMARK FOR at AS at);
        CREATE MATERIALIZED VIEW d AS SELECT k FROM r WHERE at > now() - INTERVAL 1 DAY;
        INSERT INTO r VALUES (1, TIMESTAMP '2020-01-01');
        """
    )
    db.flush()
    (rule,) = explained(db, "ALTER STREAM r SET (retention = '3 days')").values()
    shown_of = "it shows nothing of 1 of 1 events, the newest of 2020-01-01 00:00:00"
    assert rule["rule"] == f"unchanged: {shown_of}"


@pytest.mark.long
def test_views_that_lag_read_a_change_when_they_are_refreshed(ledgers: headrace.Database) -> None:
    db = ledgers
    db.sql("""
        CREATE STREAM trips (id INT, km INT);
        INSERT INTO trips VALUES (1, 10), (2, 20);
        CREATE MATERIALIZED VIEW summed WITH (refresh = 'manual') AS SELECT sum(km) AS km FROM trips;
        CREATE MATERIALIZED VIEW most WITH (refresh = 'manual') AS SELECT max(km) AS km FROM trips;
        CREATE MATERIALIZED VIEW over AS SELECT km + 1 AS km FROM summed;
        CREATE MATERIALIZED VIEW both AS SELECT t.id, s.km FROM trips t CROSS JOIN summed s;
        INSERT INTO trips VALUES (3, 30)
    """)
    later = "reads the change when it, or a view that it reads, is refreshed"
    correction = "CORRECT STREAM trips REPLACE SET km = 5 WHERE id = 1"
    said = explained(db, correction)
    assert {name: row["path"] for name, row in said.items()} == {
        "summed": "deltas",
        "most": "rebuild",
        "over": "deltas",
        "both": "deltas",
    }
    assert said["summed"]["rule"] == said["over"]["rule"] == later
    assert said["most"]["rule"].endswith(later)
    assert said["most"]["rows"] == 2, "those that it has read"
    assert (said["both"]["rule"] == later, said["both"]["changed"]) == (False, 0)
    db.sql(correction)
    kept = {row[1]: row[3] for row in db.sql("SHOW CHANGES").fetchall()}
    assert kept.keys() == said.keys()
    assert all(row["rule"].endswith(kept[name]) for name, row in said.items())
    (cost,) = (row for (row,) in db.sql("EXPLAIN REPLAY VIEW summed").fetchall()[:1])
    assert cost == "-- Replay of view summed: about 2 of 2 rows are read"
    invalidated = "INVALIDATE VIEW summed BECAUSE 'x'"
    rules = {name: row["rule"] for name, row in explained(db, invalidated).items()}
    assert (
        rules["over"]
        == rules["both"]
        == "follows the difference of what it reads, in the same epoch"
    )
    assert "2 of 2 rows" in db.sql(invalidated).message


@pytest.mark.long
def test_a_change_on_which_a_view_would_fail_says_so(ledgers: headrace.Database) -> None:
    db = ledgers
    db.sql(
        "CREATE MATERIALIZED VIEW shares AS SELECT account, 100 DIV amount AS s FROM events"
        " WHERE account > 0"
    )
    named = db.parts.ledger.files.known()
    with pytest.raises(HeadraceError, match="ivision by zero") as caught:
        db.sql("EXPLAIN CHANGE INSERT INTO events VALUES (7, 'a', 0, NULL)")
    assert "would stop" in (caught.value.hint or "")
    assert db.parts.ledger.files.known() == named
    assert {p.name for p in (db.directory / "log").iterdir()} == named.segments
    assert db.sql("SELECT count(*) FROM shares").fetchall() == [(39,)], "it goes on"


def test_classified_changes_are_kept_and_shown(ledgers: headrace.Database) -> None:
    db = ledgers
    assert db.sql("SHOW CHANGES").fetchall() == [], "views came after what was written"
    db.sql(STATEMENTS[0])
    versions = db.sql("SHOW CHANGES").fetchall()
    assert [row[1] for row in versions] == ["totals", "rated"]
    assert all(row[3].startswith("Versions in effect from 2026-02-08") for row in versions)
    assert {row[-1] for row in versions} == {STATEMENTS[0]}
    db.sql("CORRECT STREAM events VOID WHERE account = 39")
    db.sql("INVALIDATE VIEW rated WHERE account = 3 BECAUSE 'x'")
    shown = [(row[1], row[2]) for row in db.sql("SHOW CHANGES").fetchall()]
    assert sorted(shown[:2]) == [("rated", "replay"), ("totals", "deltas")], "the newest first"
    assert sorted(shown[2:5]) == [("largest", "rebuild"), ("rated", "deltas"), ("totals", "deltas")]
    (row,) = db.sql("SHOW CHANGES FOR largest").fetchall()
    assert row[-1] == "CORRECT STREAM events VOID WHERE account = 39"
    ledger, view = db.parts.ledger, db.parts.reader.catalog.resolve("totals").id
    carried = [Carried(view, RepairPath.DELTAS, str(i)) for i in range(MOST_CHANGES + 10)]
    ledger.dirty.record_changes(carried, {})
    kept = ledger.dirty.changes()
    assert (len(kept), kept[0].carried.rule) == (MOST_CHANGES, str(MOST_CHANGES + 9))
