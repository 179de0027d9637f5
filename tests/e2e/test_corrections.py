"""CORRECT STREAM: earlier events are replaced or voided, and every view follows."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError
from headrace.planning.circuit.digest import digest
from headrace.types import rows_of

if TYPE_CHECKING:
    from pathlib import Path

VIEWS = {
    "largest": "SELECT sensor, max(reading) AS m, count(*) AS n FROM s GROUP BY sensor",
    "latest": "SELECT sensor, LATEST_BY_OFFSET(reading) AS l FROM s GROUP BY sensor",
    "top": "SELECT sensor, reading FROM s ORDER BY reading DESC, sensor LIMIT 2",
    "joined": "SELECT s.sensor, s.reading, g.m FROM s JOIN largest g ON s.sensor = g.sensor",
}
"""All but the last rely on that no event changes; one reads the offsets of events."""

EVENTS = [("a", 1), ("a", 5), ("b", 7), ("b", 9), ("c", 3)]


class Sensors:
    """A stream, views over it, and what its events are now, by offset."""

    def __init__(self, db: headrace.Database) -> None:
        self.db, self.events = db, dict[int, tuple[str, int]]()
        db.sql("CREATE STREAM s (sensor STRING NOT NULL, reading INT)")
        self.insert(EVENTS)
        for name, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")

    def insert(self, events: list[tuple[str, int]]) -> None:
        for event in events:
            self.events[self.db.parts.ledger.head.log_end(self.id)] = event
            self.db.insert("s", [event])

    @property
    def id(self) -> Any:
        return self.db.parts.reader.catalog.resolve("s").id

    def check(self) -> None:
        found = self.db.sql("SELECT sensor, reading, ROWOFFSET FROM s").fetchall()
        assert {at: (sensor, reading) for sensor, reading, at in found} == self.events
        assert sorted(self.db.sql("SELECT * FROM s").fetchall()) == sorted(self.events.values())
        assert {row[3] for row in self.db.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.fixture
def sensors(tmp_path: Path, spark) -> Sensors:
    with headrace.connect(
        tmp_path / "d", spark=spark, continuous=False, partitions=2, fill_rows=2
    ) as db:
        yield Sensors(db)


@pytest.mark.long
def test_events_are_replaced_and_voided_and_every_view_follows(sensors: Sensors) -> None:
    db = sensors.db
    with db.subscribe("largest") as followed:
        followed.poll(10)
        before = db.last_epoch()
        said = db.sql(
            "CORRECT STREAM s REPLACE SET reading = reading - 6"
            " WHERE sensor = 'b' AND reading > 8 BECAUSE 'drift'"
        )
        assert said.message == "1 event replaced"
        sensors.events[3] = ("b", 3)
        sensors.check()
        changes = [c for c in followed.poll(10) or [] if c.epoch > before]
        assert [(c.operation, c.row["m"]) for c in changes] == [("-U", 9), ("+U", 7)]
        assert len({c.epoch for c in changes}) == 1
    # An event that was corrected is corrected again; others come; one is void.
    db.sql("CORRECT STREAM s REPLACE SET reading = 100, sensor = 'd' WHERE ROWOFFSET = 3")
    sensors.events[3] = ("d", 100)
    sensors.insert([("b", 2)])
    db.sql("CORRECT STREAM s VOID WHERE s.reading BETWEEN 5 AND 7")
    del sensors.events[1], sensors.events[2]
    sensors.check()
    assert db.sql("CORRECT STREAM s VOID WHERE reading = 7").message == "0 events voided"
    # A view that comes later is filled from the log with its corrections, part by part.
    db.sql("CREATE MATERIALIZED VIEW later AS SELECT max(reading) AS m, count(*) AS n FROM s")
    assert db.sql("SELECT * FROM later").fetchall() == [(100, 4)]
    db.sql("CORRECT STREAM s VOID WHERE reading = 100")
    del sensors.events[3]
    assert db.sql("SELECT * FROM later").fetchall() == [(3, 3)]
    sensors.check()
    for view in ("largest", "latest", "joined"):
        done = db.sql(f"REPLAY VIEW {view} WHERE sensor = 'b'")
        assert done.message.startswith(f"0 rows of view {view} changed"), "it was right"
    sensors.check()


@pytest.mark.long
def test_a_view_that_lags_shows_no_event_that_was_corrected_before_it_is_refreshed(
    tmp_path: Path, spark
) -> None:
    with headrace.connect(tmp_path / "d", spark=spark, continuous=False, partitions=2) as db:
        db.sql("""
            CREATE STREAM y (id INT, x INT);
            INSERT INTO y VALUES (1, 1);
            CREATE MATERIALIZED VIEW ym WITH (refresh = 'manual') AS
                SELECT max(x) AS m, count(*) AS n FROM y;
            CREATE MATERIALIZED VIEW over AS SELECT m + n AS s FROM ym;
            INSERT INTO y VALUES (2, 100)
        """)

        def shown() -> list[object]:
            verdicts = {row[3] for row in db.sql("VERIFY").fetchall()}
            assert verdicts == {"equal to batch"}
            return [db.sql(f"SELECT * FROM {v}").fetchall() for v in ("ym", "over")]

        assert shown() == [[(1, 1)], [(2,)]]
        epoch = db.last_epoch()
        db.sql("CORRECT STREAM y REPLACE SET x = 50 WHERE id = 7")
        assert db.last_epoch() == epoch, "no event is corrected, so no view is rebuilt"
        db.sql("CORRECT STREAM y REPLACE SET x = 50 WHERE id = 2")
        assert shown() == [[(1, 1)], [(2,)]]
        db.sql("REFRESH ym")
        assert shown() == [[(50, 2)], [(52,)]]
        db.sql("CORRECT STREAM y VOID WHERE id = 2")
        assert shown() == [[(50, 2)], [(52,)]]
        db.sql("REFRESH ym")
        assert shown() == [[(1, 1)], [(2,)]]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_events_and_corrections_is_what_a_model_says(
    sensors: Sensors, seed: int
) -> None:
    """Events, replacements and voids at random, with views that come in between, and restarts."""
    chance, db = Random(seed), sensors.db
    for step in range(24):
        offsets = sorted(sensors.events)
        some = chance.sample(offsets, min(len(offsets), chance.randint(1, 3)))
        listed = ", ".join(map(str, some))
        match chance.choice(("insert", "insert", "replace", "replace", "void", "view")):
            case "insert":
                new = [(chance.choice("abcd"), chance.randint(0, 99)) for _ in range(3)]
                sensors.insert(new)
            case "replace" if some:
                sensor, more = chance.choice("abcd"), chance.randint(-50, 50)
                sensors.db.sql(
                    f"CORRECT STREAM s REPLACE SET sensor = '{sensor}', reading = reading + {more}"
                    f" WHERE ROWOFFSET IN ({listed})"
                )
                for at in some:
                    sensors.events[at] = (sensor, sensors.events[at][1] + more)
            case "void" if some:
                sensors.db.sql(f"CORRECT STREAM s VOID WHERE ROWOFFSET IN ({listed})")
                for at in some:
                    del sensors.events[at]
            case "view":
                query = chance.choice(
                    (
                        "SELECT min(reading) AS m, count(DISTINCT sensor) AS n FROM s",
                        "SELECT a.sensor, b.reading FROM s a LEFT JOIN s b ON a.reading = b.reading",
                        "SELECT sensor, sum(reading) AS t FROM s GROUP BY sensor",
                        "SELECT sensor FROM s EXCEPT SELECT sensor FROM largest WHERE m > 50",
                    )
                )
                sensors.db.sql(f"CREATE MATERIALIZED VIEW v{step} AS {query}")
        if step % 4 == 3:
            sensors.check()
        if step == 13:
            sensors.db.close()
            sensors.db = headrace.connect(
                db.directory, spark=db.parts.engine.spark, continuous=False, fill_rows=2
            )
    sensors.check()
    sensors.db.close()


@pytest.mark.long
def test_what_events_were_stays_readable(sensors: Sensors) -> None:
    db = sensors.db
    db.sql("CORRECT STREAM s REPLACE SET reading = 8 WHERE ROWOFFSET = 3 BECAUSE 'drift'")
    db.sql("CORRECT STREAM s VOID WHERE ROWOFFSET IN (0, 3)")
    found = db.sql(
        "SELECT event_offset, before, after, reason FROM information_schema.corrections"
    ).fetchall()
    assert sorted(found, key=str) == [
        (0, '{"sensor": "a", "reading": 1}', None, None),
        (3, '{"sensor": "b", "reading": 8}', None, None),
        (3, '{"sensor": "b", "reading": 9}', '{"sensor": "b", "reading": 8}', "drift"),
    ]


@pytest.mark.long
def test_only_views_that_rely_on_it_are_rebuilt_and_only_before_the_first(sensors) -> None:
    db = sensors.db

    def builds() -> dict[str, Any]:
        return {v.name: v.build for v in db.parts.reader.catalog.views_in_order()}

    before = builds()
    db.sql("CORRECT STREAM s VOID WHERE ROWOFFSET = 0")
    after = builds()
    assert {name for name in VIEWS if before[name] != after[name]} == {*VIEWS} - {"joined"}
    db.sql("CORRECT STREAM s VOID WHERE ROWOFFSET = 1")
    assert builds() == after
    db.close()
    with headrace.connect(db.directory, spark=db.parts.engine.spark, continuous=False) as again:
        for view in again.parts.reader.catalog.views_in_order():
            assert view.circuit == digest(again.parts.engine.circuit(view))
        assert {row[3] for row in again.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_views_that_were_prepared_stay_so_if_the_correction_never_comes(
    sensors: Sensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may end after the views are rebuilt, and before the stream is marked."""
    db = sensors.db

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("headrace.lifecycle.definitions.definer.Definer.redefine", crash)
        with pytest.raises(KeyboardInterrupt):
            db.sql("CORRECT STREAM s VOID WHERE ROWOFFSET = 1")
    db.close()
    with headrace.connect(db.directory, spark=db.parts.engine.spark, continuous=False) as again:
        sensors.db = again
        assert not again.parts.reader.catalog.resolve("s").corrected
        sensors.insert([("c", 8)])
        sensors.check()
        again.sql("CORRECT STREAM s VOID WHERE ROWOFFSET = 1")
        del sensors.events[1]
        sensors.check()


NO_CORRECTIONS = [
    ("CORRECT STREAM s REPLACE SET sensor = NULL WHERE true", "is NULL"),
    ("CORRECT STREAM s REPLACE SET nothing = 1 WHERE true", "nothing"),
    ("CORRECT STREAM s VOID WHERE nothing", "nothing"),
    ("CORRECT STREAM s REPLACE SET reading = 'x' || sensor WHERE true", "is not an INT"),
    ("CORRECT STREAM largest VOID WHERE true", "not a stream"),
]


def test_what_is_no_correction_is_refused_and_changes_nothing(sensors: Sensors) -> None:
    for statement, words in NO_CORRECTIONS:
        with pytest.raises(HeadraceError, match=words) as caught:
            sensors.db.sql(statement)
        assert caught.value.code is Code.INVALID, statement
        assert caught.value.span is not None, statement
    assert sensors.db.parts.ledger.log.corrections(sensors.id) == ()


@pytest.mark.long
def test_a_view_that_can_no_longer_be_read_where_it_stands_is_named(db) -> None:
    db.sql(
        """
        CREATE STREAM s (k INT, v INT);
        CREATE TABLE t (k INT PRIMARY KEY, n INT);
        INSERT INTO t VALUES (1, 1);
        CREATE MATERIALIZED VIEW names AS SELECT k, n FROM t;
        CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS
          SELECT most.k, most.v, names.n
          FROM (SELECT k, max(v) AS v FROM s GROUP BY k) AS most JOIN names ON most.k = names.k;
        INSERT INTO s VALUES (1, 1);
        INSERT INTO t VALUES (2, 2);
        """
    )
    db.flush()
    view = db.parts.reader.catalog.resolve("names")
    for run in db.parts.ledger.spines.runs(rows_of(view.id)):
        path = db.directory / "runs" / run.file.pack
        path.write_bytes(path.read_bytes()[:-9])
    forget_runs()
    db.sql("REPAIR names")
    with pytest.raises(HeadraceError, match='the inputs of view "late" can no longer') as caught:
        db.sql("CORRECT STREAM s VOID WHERE k = 1")
    assert caught.value.hint is not None
    assert "CREATE OR REPLACE late" in caught.value.hint


@pytest.mark.long
def test_a_view_that_stopped_runs_again_once_its_event_is_corrected(db) -> None:
    db.sql(
        """
        CREATE STREAM s (k INT, x STRING);
        CREATE MATERIALIZED VIEW most AS SELECT k, max(CAST(x AS INT)) AS m FROM s GROUP BY k;
        INSERT INTO s VALUES (1, '1'), (1, 'zz'), (2, '5');
        """
    )
    db.flush()
    db.sql("CORRECT STREAM s REPLACE SET x = '4' WHERE x = 'zz'")
    (repaired,) = db.sql("REPAIR most").fetchall()
    assert repaired[2].endswith("and running")
    db.sql("CREATE MATERIALIZED VIEW numbers AS SELECT CAST(x AS INT) AS n FROM s")
    db.sql("CORRECT STREAM s VOID WHERE x = '5'; INSERT INTO s VALUES (3, '2')")
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
    assert sorted(db.sql("SELECT * FROM most").fetchall()) == [(1, 4), (3, 2)]
    assert sorted(db.sql("SELECT * FROM numbers").fetchall()) == [(1,), (2,), (4,)]


@pytest.mark.long
def test_views_that_stopped_or_lag_read_events_as_they_are_now(tmp_path: Path, spark) -> None:
    db = headrace.connect(tmp_path / "d", spark=spark, continuous=False, partitions=2)
    db.sql(
        """
        CREATE STREAM s (k INT, x STRING);
        CREATE MATERIALIZED VIEW sums AS SELECT k, sum(CAST(x AS INT)) AS t FROM s GROUP BY k;
        CREATE MATERIALIZED VIEW most AS SELECT k, max(CAST(x AS INT)) AS m FROM s GROUP BY k;
        CREATE MATERIALIZED VIEW above AS
          SELECT max(s.k) AS k, max(m) AS m FROM s JOIN most ON s.k = most.k;
        CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS
          SELECT k, LATEST_BY_OFFSET(x) AS l, sum(CAST(x AS INT)) AS t FROM s GROUP BY k;
        INSERT INTO s VALUES (1, '1'), (1, 'zz'), (2, '5');
        """
    )
    db.flush()
    with pytest.raises(HeadraceError, match="stopped"):
        db.sql("SELECT * FROM sums")
    db.sql("CORRECT STREAM s REPLACE SET x = 'yy' WHERE x = 'zz'")
    with pytest.raises(HeadraceError, match="'yy'"):  # it fails still, on what the event is now
        db.sql("CREATE MATERIALIZED VIEW more AS SELECT CAST(x AS INT) AS n FROM s")
    db.sql("CORRECT STREAM s REPLACE SET x = '4' WHERE x = 'yy'")
    db.sql("CORRECT STREAM s VOID WHERE x = '5'")
    db.close()
    db = headrace.connect(tmp_path / "d", spark=spark, continuous=False, partitions=2)
    repaired = {row[0]: row[2] for row in db.sql("REPAIR").fetchall()}
    assert repaired.keys() == {"sums", "most", "above"}
    assert all(done.endswith("and running") for done in repaired.values())
    db.sql("REFRESH late")
    assert db.sql("SELECT * FROM late").fetchall() == [(1, "4", 5)]
    db.sql("CORRECT STREAM s REPLACE SET x = '6' WHERE x = '4'; INSERT INTO s VALUES (2, '2')")
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
    assert sorted(db.sql("SELECT * FROM sums").fetchall()) == [(1, 7), (2, 2)]
    assert sorted(db.sql("SELECT * FROM most").fetchall()) == [(1, 6), (2, 2)]
    assert db.sql("SELECT * FROM above").fetchall() == [(2, 6)]
    db.close()
