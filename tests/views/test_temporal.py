"""Views over the clock: after every epoch, compared with Spark and the clock's value.

The clock is set by the test. The expected side is the view's own text, with a literal in place of
``now()`` and ``current_date``, evaluated by Spark batch over what the test wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from bags import Model, bag_of, canonical
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.connected import clocked
from length import choose, each, thorough
from sessions import batch_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)
PARTITIONS = 2


class Clocked:
    """A database with a clock of its own, what was written to it, and what must follow."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.batch = batch_session(spark)
        self.time = START
        self.models: dict[str, Model] = {}
        self.views: dict[str, str] = {}
        self.changelogs: dict[str, Any] = {}
        self.followed: dict[str, Any] = {}
        self.open()

    def open(self) -> None:
        self.db = headrace.connect(
            self.directory,
            spark=self.spark,
            clock=lambda: (self.time - EPOCH) // MICRO,
            continuous=False,
            partitions=PARTITIONS,
        )
        for name in self.views:
            self.follow(name)

    def restart(self) -> None:
        self.db.close()
        self.open()
        self.check()

    def stream(self, name: str, columns: str) -> None:
        self.db.sql(f"CREATE STREAM {name} ({columns})")
        self.models[name] = Model.of(name, columns, deletes=False)

    def table(self, name: str, columns: str, key: str = "") -> None:
        primary = f", PRIMARY KEY ({key})" if key else ""
        self.db.sql(f"CREATE TABLE {name} ({columns}{primary})")
        self.models[name] = Model.of(name, columns, key)

    def view(self, name: str, query: str) -> None:
        self.db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        self.views[name] = query
        self.follow(name)
        self.check()

    def follow(self, name: str) -> None:
        self.followed[name] = self.db.subscribe(name)
        self.changelogs[name] = Counter()

    def insert(self, name: str, *rows: Sequence[Any]) -> None:
        self.db.insert(name, list(rows))
        self.models[name].write([(1, tuple(row)) for row in rows])

    def delete(self, name: str, *rows: Sequence[Any]) -> None:
        """Delete rows that are there, by their first column."""
        keys = ", ".join(str(row[0]) for row in rows)
        self.db.sql(f"DELETE FROM {name} WHERE {self.models[name].names[0]} IN ({keys})")
        self.models[name].write([(-1, tuple(row)) for row in rows], ordered=False)

    def passes(self, by: timedelta) -> int:
        """Let time pass; return how many epochs were made."""
        self.time += by
        return self.epoch()

    def epoch(self) -> int:
        made = 0
        while self.db.parts.loop.advance() is not None:
            made += 1
        self.check()
        return made

    def clock(self) -> datetime:
        return EPOCH + self.db.parts.ledger.epochs.clock() * MICRO

    def check(self) -> None:
        """Hold every view to its query at the clock of the last epoch."""
        self.db.flush()
        assert not self.db.parts.loop.stopped(), self.db.parts.ledger.head.dirty
        clock = self.clock().replace(tzinfo=None)
        for model in self.models.values():
            model.advance(len(model.log))
            frame = self.batch.createDataFrame(model.table(), model.schema)
            frame.createOrReplaceTempView(model.name)
        for name, query in self.views.items():
            text = re.sub(r"now\(\)", f"TIMESTAMP '{clock}'", query)
            text = re.sub(r"current_date(\(\))?", f"DATE '{clock.date()}'", text)
            assert text != query or name.startswith(("plain", "over"))
            frame = self.batch.sql(text)
            frame.createOrReplaceTempView(name)
            expected = bag_of(frame.toArrow())
            assert bag_of(self.db.sql(f"SELECT * FROM {name}").to_arrow()) == expected, (
                name,
                clock,
            )
            self.take_changes(name)
            assert self.changelogs[name] == expected, ("changelog", name, clock)

    def take_changes(self, name: str) -> None:
        fields = list(self.followed[name]._follower.history.layout.columns)
        for change in self.followed[name].poll() or []:
            row = tuple(canonical(change.row[f.name], f.type) for f in fields)
            self.changelogs[name][row] += change.weight
            if not self.changelogs[name][row]:
                del self.changelogs[name][row]

    def finish(self) -> None:
        """Verify by canonical history, compact, restart, and check again."""
        for _, _, differences, verdict in self.db.sql("VERIFY").fetchall():
            assert (differences, verdict) == (0, "equal to batch")
        self.db.compact()
        self.restart()

    def rows(self, name: str) -> list[tuple]:
        return sorted(self.db.sql(f"SELECT * FROM {name}").fetchall())


@pytest.fixture
def run(tmp_path: Path, spark: SparkSession) -> Iterator[Clocked]:
    made = Clocked(spark, tmp_path / "db")
    yield made
    made.db.close()


@pytest.fixture
def refused(db: headrace.Database) -> Callable[[str], HeadraceError]:
    db.sql("CREATE STREAM t (k INT, ts TIMESTAMP, d DATE)")
    db.sql("CREATE STREAM u (k INT, ts TIMESTAMP)")

    def of(query: str) -> HeadraceError:
        with pytest.raises(HeadraceError) as caught:
            db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
        assert caught.value.code is Code.UNSUPPORTED
        return caught.value

    return of


@pytest.mark.long
def test_a_row_is_there_until_it_is_too_old(run: Clocked) -> None:
    run.stream("t", "k INT, ts TIMESTAMP")
    run.view("recent", "SELECT k, ts FROM t WHERE ts > now() - INTERVAL 5 MINUTES AND k < 100")
    run.insert("t", (1, START), (2, START - 4 * MINUTE), (3, START - 5 * MINUTE), (4, None))
    run.insert("t", (1, START), (200, START))
    run.epoch()
    assert [k for k, _ in run.rows("recent")] == [1, 1, 2]
    assert run.passes(MINUTE - MICRO) == 0
    assert run.passes(MICRO) == 1
    assert [k for k, _ in run.rows("recent")] == [1, 1]
    run.finish()
    run.insert("t", (5, START - timedelta(hours=1)), (6, START + timedelta(hours=1)))
    assert run.epoch() == 1
    assert run.passes(timedelta(hours=5)) == 1
    assert run.rows("recent") == []
    assert run.passes(timedelta(days=5)) == 0
    run.finish()


@pytest.mark.long
def test_what_is_still_to_come_enters_at_its_time(run: Clocked) -> None:
    run.stream("t", "k INT, ts TIMESTAMP")
    run.view("window", "SELECT k FROM t WHERE ts BETWEEN now() - INTERVAL 10 SECONDS AND now()")
    run.view("future", "SELECT k FROM t WHERE ts >= now() + INTERVAL '1 00:00:30' DAY TO SECOND")
    second = timedelta(seconds=1)
    run.insert("t", *((i, START + (i - 15) * second) for i in range(40)))
    run.epoch()
    for by in (second, second / 2, 3 * second, timedelta(0), 9 * second, MICRO, 30 * second):
        run.passes(by)
    assert run.rows("window") == []
    run.finish()


@pytest.mark.long
def test_a_sliding_window_is_counted_as_it_slides(run: Clocked) -> None:
    run.table("t", "id INT, g INT, ts TIMESTAMP, x BIGINT", key="id")
    run.view(
        "sliding",
        "SELECT g, count(*) AS n, sum(x) AS total, max(x) AS most FROM t"
        " WHERE ts > now() - INTERVAL 1 MINUTE AND ts <= now() GROUP BY g",
    )
    run.view("over_sliding", "SELECT count(*) AS groups, sum(n) AS n FROM sliding")
    rows = [(i, i % 3, START + timedelta(seconds=7 * i - 70), i * i) for i in range(30)]
    run.insert("t", *rows)
    run.epoch()
    for _ in range(3):
        run.passes(timedelta(seconds=13))
    run.delete("t", rows[0], rows[9], rows[25])
    run.insert("t", (10, 0, START + timedelta(seconds=30), 7), (11, 1, START - MINUTE, 8))
    run.passes(timedelta(seconds=11))
    run.restart()
    run.passes(timedelta(seconds=40))
    run.passes(timedelta(minutes=10))
    assert run.rows("over_sliding") == [(0, None)]
    run.finish()


@pytest.mark.long
def test_deletes_before_and_after_a_row_has_left(run: Clocked) -> None:
    run.table("t", "k INT, ts TIMESTAMP")
    run.view("recent", "SELECT k FROM t WHERE ts >= now() - INTERVAL 5 MINUTES AND ts < now()")
    rows = [(i, START + (i - 7) * MINUTE) for i in range(14)]
    run.insert("t", *rows)
    run.epoch()
    run.delete("t", rows[0], rows[5], rows[12])
    run.passes(3 * MINUTE)
    run.delete("t", rows[4], rows[6])
    run.insert("t", rows[4], rows[8])
    run.passes(20 * MINUTE)
    run.delete("t", *rows[1:4], *rows[7:8], *rows[9:12])
    run.epoch()
    assert clocked(run.db.parts.ledger.head)
    assert run.db.parts.loop.seconds_until_due() is None
    run.finish()


@pytest.mark.long
def test_a_condition_on_the_clock_in_a_join(run: Clocked) -> None:
    run.stream("t", "k INT, ts TIMESTAMP")
    run.table("u", "k INT, name STRING, grace INTERVAL DAY TO SECOND", key="k")
    run.view(
        "valid",
        "SELECT t.k, u.name FROM t JOIN u ON t.k = u.k AND t.ts + u.grace > now()"
        " AND t.ts <= now()",
    )
    if thorough():
        run.view(
            "between",
            "SELECT t.k, u.name FROM t JOIN u"
            " ON t.k = u.k AND now() BETWEEN t.ts AND t.ts + u.grace",
        )
    run.view(
        "waiting",
        "SELECT k FROM u WHERE EXISTS (SELECT 1 FROM t"
        " WHERE t.k = u.k AND now() BETWEEN t.ts AND t.ts + INTERVAL 2 MINUTES)",
    )
    run.view(
        "latest",
        "SELECT u.k, count(t.k) AS n FROM u LEFT JOIN t"
        " ON t.k = u.k AND t.ts > now() - INTERVAL 2 MINUTES GROUP BY u.k",
    )
    run.view(
        "quiet",
        "SELECT k FROM u WHERE k NOT IN (SELECT k FROM t WHERE ts > now() - INTERVAL 3 MINUTES)",
    )
    run.view(
        "late",
        "SELECT k, max(ts) AS last FROM t GROUP BY k HAVING max(ts) < now() - INTERVAL 1 MINUTE",
    )
    run.insert("u", *((k, f"u{k}", k * MINUTE) for k in range(4)))
    run.insert("t", *((k, START - (k % 3 - 1) * MINUTE) for k in range(6)))
    run.epoch()
    run.passes(MINUTE)
    run.insert("u", (1, "other", 9 * MINUTE), (5, "u5", MINUTE))
    run.insert("t", (1, run.time), (2, run.time))
    run.epoch()
    run.passes(MINUTE)
    run.restart()
    run.passes(2 * MINUTE)
    run.passes(30 * MINUTE)
    run.finish()


@pytest.mark.long
def test_days_pass_at_midnight(run: Clocked) -> None:
    run.stream("t", "k INT, d DATE, ts TIMESTAMP")
    run.view("week", "SELECT k, d FROM t WHERE d > current_date() - 7 AND d <= current_date")
    run.view("days", "SELECT k FROM t WHERE date_diff(current_date(), d) BETWEEN 1 AND 3")
    run.view("today", "SELECT k FROM t WHERE ts >= current_date() AND ts < current_date() + 1")
    run.view(
        "elapsed", "SELECT k FROM t WHERE now() - ts < INTERVAL 2 DAYS AND to_date(now()) >= d"
    )
    run.view("ahead", "SELECT k FROM t WHERE d - INTERVAL 2 DAYS >= now() - INTERVAL 7 HOURS")
    today = date(2026, 3, 1)
    run.insert(
        "t",
        *(
            (i, today + timedelta(days=i - 9), START + timedelta(hours=5 * i - 30))
            for i in range(18)
        ),
        (99, None, None),
    )
    run.epoch()
    for by in choose((6, 5.9, 0.1, 24, 1000), (6, 5.9, 0.1, 7, 5, 12, 1, 24, 100, 1000)):
        run.passes(timedelta(hours=by))
    run.finish()


@pytest.mark.long
def test_an_idle_database_does_nothing_until_a_row_is_due(run: Clocked) -> None:
    run.stream("t", "k INT, ts TIMESTAMP")
    run.stream("other", "k INT")
    run.view("recent", "SELECT k FROM t WHERE ts > now() - INTERVAL 5 MINUTES")
    run.view("plain", "SELECT k, count(*) AS n FROM other GROUP BY k")
    run.insert("t", (1, START))
    run.insert("other", (1,))
    run.epoch()
    loop, ledger = run.db.parts.loop, run.db.parts.ledger
    assert loop.seconds_until_due() == 300
    run.time += 5 * MINUTE
    assert loop.seconds_until_due() == 0
    assert loop.advance() is not None
    counters = ledger.epochs.newest(1)[0].counters
    assert (counters["width"], counters["jobs"], counters["changes"]) == ("narrow", 0, 0)
    assert loop.advance() is None
    run.time -= timedelta(days=1)
    run.insert("other", (1,))
    run.epoch()
    assert run.clock() == START + 5 * MINUTE
    run.finish()


@pytest.mark.long
def test_a_view_that_is_made_later_is_filled_at_the_clock_of_its_epoch(run: Clocked) -> None:
    run.stream("t", "k INT, ts TIMESTAMP")
    run.view("first", "SELECT k FROM t WHERE ts > now() - INTERVAL 5 MINUTES")
    run.insert("t", *((i, START + i * MINUTE) for i in range(20)))
    run.epoch()
    run.time += 12 * MINUTE + 30_000_000 * MICRO
    run.view("second", "SELECT k FROM t WHERE ts > now() - INTERVAL 2 MINUTES AND ts < now()")
    assert run.rows("second") == [(11,), (12,)]
    run.passes(MINUTE)
    run.finish()


@pytest.mark.long
def test_epochs_are_made_in_the_background_when_a_row_is_due(
    tmp_path: Path, spark: SparkSession
) -> None:
    with headrace.connect(tmp_path / "db", spark=spark, partitions=PARTITIONS) as db:
        db.sql("CREATE STREAM t (k INT, ts TIMESTAMP)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM t WHERE ts > now()")
        now = datetime.now(UTC)
        db.insert("t", [(1, now + timedelta(seconds=4)), (2, now + timedelta(days=1))])
        db.flush()
        loop = db.parts.loop
        before = db.parts.ledger.head.epoch
        assert loop.published.wait_for(lambda: loop.published.current.epoch > before, 60)
        assert db.sql("SELECT k FROM v").fetchall() == [(2,)]


@pytest.mark.long
def test_explain_shows_the_condition_and_its_cost(run: Clocked) -> None:
    run.stream("t", "k INT, ts TIMESTAMP")
    run.view("recent", "SELECT k FROM t WHERE ts > now() - INTERVAL 5 MINUTES")
    lines = "\n".join(line for (line,) in run.db.sql("EXPLAIN VIEW recent").fetchall())
    assert "Temporal (t.ts > now() + INTERVAL '-05' MINUTE)" in lines
    assert "per change: one row stored for each time at which it will enter or leave" in lines


REFUSALS = [
    ("SELECT k, now() AS n FROM t", "now()"),
    ("SELECT k FROM t WHERE ts = now()", "ts = now()"),
    ("SELECT k FROM t WHERE ts > now() OR k = 1", "ts > now() OR k = 1"),
    ("SELECT k FROM t WHERE ts > now() - INTERVAL 1 MONTH", "ts > now() - INTERVAL 1 MONTH"),
    ("SELECT k FROM t WHERE d = current_date()", "d = current_date()"),
    ("SELECT k FROM t WHERE year(now()) > k", "year(now()) > k"),
    ("SELECT k FROM t WHERE date_trunc('HOUR', now()) < ts", "date_trunc('HOUR', now()) < ts"),
    ("SELECT count(*) FILTER (WHERE ts > now()) AS n FROM t", "now()"),
    ("SELECT k FROM t WHERE CASE WHEN ts > now() THEN true ELSE k = 1 END", None),
    (
        "SELECT t.k FROM t LEFT JOIN u ON t.k = u.k AND t.ts + (u.ts - t.ts) > now()",
        "t.ts + (u.ts - t.ts) > now()",
    ),
    (
        "SELECT t.k FROM t JOIN u ON t.k = u.k AND now() NOT BETWEEN t.ts AND u.ts",
        "NOT BETWEEN t.ts AND u.ts",
    ),
    ("SELECT k FROM t WHERE ts > localtimestamp()", "localtimestamp()"),
]


@pytest.mark.parametrize(("query", "place"), each(3, REFUSALS))
def test_what_cannot_be_kept_is_refused_at_its_place(refused, query, place) -> None:
    error = refused(query)
    assert error.hint
    assert error.detail
    assert place is None or error.span.source == place
