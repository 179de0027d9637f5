"""A directory that was open before: its views are planned when they are first needed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.tools.cli.command import main
from length import choose

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace import Database

pytestmark = pytest.mark.spark

MINUTE = 60_000_000
_IMPORTED = """
import sys
from headrace.tools.cli.command import main

code = main(sys.argv[1:])
slow = ("pandas", "headrace.planning.circuit", "headrace.algebra.operators", "headrace.planning.catalyst", "headrace.interfaces.database")
print([name for name in sys.modules if name.startswith(slow)])
"""
"""Runs a command, and prints what it has imported that takes long."""


def planned(db: Database) -> set[str]:
    """Return the names of the views whose circuits have been planned."""
    known = db.parts.engine.circuits.known
    return {v.name for v in db.parts.reader.catalog.views_in_order() if known(v.id) is not None}


NARROW = {
    "sums": "SELECT k, count(*) AS n, sum(v) AS v, avg(v) AS a FROM s GROUP BY k",
    "words": "SELECT upper(t) AS t, count(*) AS n FROM s GROUP BY upper(t)",
    "different": "SELECT DISTINCT v FROM s",
    "joined": "SELECT s.k, s.v, c.name FROM s LEFT JOIN c ON s.k = c.k",
    "best": "SELECT * FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, t) AS r"
    " FROM s) WHERE r <= 2",
    "before": "SELECT k, v, lag(v) OVER (PARTITION BY k ORDER BY v, t) AS b FROM s",
    "per_name": "SELECT c.name, sum(x.v) AS v FROM sums x JOIN c ON x.k = c.k GROUP BY c.name",
    "recent": "SELECT k FROM s WHERE at > now() - INTERVAL 1 MINUTE",
    "reach": "WITH RECURSIVE r(b) AS (SELECT k FROM s WHERE v = 5 UNION ALL"
    " SELECT c.above FROM r JOIN c ON c.k = r.b) SELECT b FROM r",
    "careful": "SELECT k, v + 1 AS v FROM s",
}
"""Views whose programs of narrow steps need no JVM."""


def fails(_settings: object) -> SparkSession:
    raise HeadraceError(Code.UNAVAILABLE, "Spark could not be started")


def add(db: Database, *rows: tuple[int, int, str]) -> None:
    at = datetime.fromtimestamp(db.parts.loop.clock() / 1_000_000, UTC)
    for k, v, t in rows:
        db.insert("s", [{"k": k, "v": v, "t": t, "at": at}])
    db.flush()


@pytest.mark.long
def test_views_are_planned_when_an_epoch_or_a_statement_needs_them(tmp_path, spark) -> None:
    now = [1_700_000_000_000_000]
    settings = {
        "spark": spark,
        "continuous": False,
        "partitions": 2,
        "clock": lambda: now[0],
    }
    with headrace.connect(tmp_path, **settings) as db:
        db.sql(
            "CREATE TABLE t (k INT PRIMARY KEY, v INT); CREATE TABLE u (k INT, v INT);"
            "CREATE STREAM s (at TIMESTAMP);"
            "CREATE TABLE edges (a INT, b INT);"
            "CREATE VIEW plain AS SELECT k, v FROM t WHERE v > 0;"
            "CREATE MATERIALIZED VIEW counts AS SELECT v, count(*) AS n FROM plain GROUP BY v;"
            "CREATE MATERIALIZED VIEW most AS SELECT max(n) AS n FROM counts;"
            "CREATE MATERIALIZED VIEW other AS SELECT k, sum(v) AS v FROM u GROUP BY k;"
            "CREATE MATERIALIZED VIEW renamed AS SELECT k AS id FROM u;"
            "CREATE MATERIALIZED VIEW careful WITH (on_error = 'quarantine') AS"
            " SELECT k, 10 div v AS q FROM u;"
            "CREATE MATERIALIZED VIEW recent AS"
            " SELECT at FROM s WHERE at > now() - INTERVAL 1 MINUTE;"
            "CREATE MATERIALIZED VIEW reach AS WITH RECURSIVE r(b) AS"
            " (SELECT b FROM edges WHERE a = 1 UNION ALL SELECT e.b FROM r JOIN edges e ON e.a = r.b)"
            " SELECT b FROM r;"
            "INSERT INTO t VALUES (1, 10), (2, 10); INSERT INTO u VALUES (1, 5), (1, 6);"
            "INSERT INTO edges VALUES (1, 2), (2, 3);"
            "INSERT INTO s VALUES (TIMESTAMP '2023-11-14 22:13:10')"
        )
        db.flush()
        assert len(db.sql("SELECT * FROM recent").fetchall()) == 1

    with headrace.connect(tmp_path, **settings) as db:
        assert planned(db) == set()
        assert db.sql("SELECT n FROM counts WHERE v = 10").fetchall() == [(2,)]
        assert db.sql("SELECT count(*) FROM other JOIN counts").fetchall() == [(1,)]
        db.sql("SHOW VIEWS; SHOW CREATE VIEW other; DESCRIBE other")
        assert planned(db) == set()
        db.sql("INSERT INTO t VALUES (3, 10)")
        assert db.sql("SELECT n FROM most").fetchall() == [(3,)]
        assert planned(db) == {"counts", "most"}
        # Its row leaves by the clock alone.
        now[0] += 2 * MINUTE
        assert db.sql("SELECT * FROM recent").fetchall() == []
        assert planned(db) == {"counts", "most", "recent"}

    with headrace.connect(tmp_path, **settings) as db:
        db.sql("DROP VIEW renamed; ALTER MATERIALIZED VIEW most SET (refresh = 'manual')")
        db.sql("INSERT INTO edges VALUES (3, 4); INSERT INTO u VALUES (2, 0), (3, 5)")
        assert len(db.sql("SELECT * FROM reach").fetchall()) == 3
        assert db.sql("SELECT count(*) FROM careful").fetchall() == [(3,)]
        assert "counts" not in planned(db)
        counts = "SELECT v, count(k) AS n FROM t GROUP BY v"
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW counts AS {counts}")
        assert set(db.sql("VERIFY").to_arrow()["differences"].to_pylist()) == {0}
        db.sql("INSERT INTO t VALUES (4, 10); REFRESH most")
        assert db.sql("SELECT n FROM most").fetchall() == [(4,)]

    with headrace.connect(tmp_path, **settings) as db:
        db.parts.planning.run()
        assert len(planned(db)) == 6
        assert "Circuit" in str(db.sql("EXPLAIN reach").fetchall())


def test_rows_are_read_before_spark_runs(tmp_path, spark, monkeypatch) -> None:
    """And without it: here it is started where the first statement needs it, or fails to start."""
    settings = {"continuous": False, "partitions": 2}
    with headrace.connect(tmp_path, spark=spark, **settings) as db:  # so no program is stored
        db.sql(
            "CREATE TABLE t (k INT PRIMARY KEY, v STRING); CREATE STREAM s (k INT);"
            "CREATE VIEW plain AS SELECT k FROM t;"
            "CREATE MATERIALIZED VIEW counts AS SELECT v, count(*) AS n FROM t GROUP BY v;"
            "CREATE MATERIALIZED VIEW held AS SELECT k, v FROM t;"
            "CREATE INDEX by_v ON held (v);"
            "INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'b')"
        )
        db.flush()

    started: list[object] = []

    def start(_settings: object) -> SparkSession:
        started.append(1)
        return spark

    def read_without(db: Database) -> None:
        assert db.sql("SELECT n FROM counts WHERE v = 'a'").fetchall() == [(2,)]
        assert db.sql("SELECT k FROM held WHERE v = 'b'").fetchall() == [(3,)]
        assert db.sql("SELECT * FROM t WHERE k = 3").fetchall() == [(3, "b")]
        assert len(db.sql("SELECT * FROM held").fetchall()) >= 3
        db.sql("SHOW TABLES; SHOW VIEWS; SHOW CREATE VIEW counts; DESCRIBE t; SHOW JOBS")
        db.sql("SET consistency = 'strict'")
        assert db.sql("SELECT n FROM counts WHERE v = 'b'").fetchall() == [(1,)]
        db.sql("SET consistency = 'session'")

    monkeypatch.setattr("headrace.interfaces.database.start_spark", start)
    with headrace.connect(tmp_path, **settings) as db:
        read_without(db)
        db.sql("INSERT INTO t VALUES (4, 'c')")
        assert started == []
        assert db.sql("SELECT n FROM counts WHERE v = 'c'").fetchall() == [(1,)]
        assert db.sql("SELECT max(k) FROM plain").fetchall() == [(4,)]
        assert started == [1]

    monkeypatch.setattr("headrace.interfaces.database.start_spark", fails)
    with headrace.connect(tmp_path, **settings) as db:
        with pytest.raises(HeadraceError, match="could not be started"):
            db.sql("SELECT max(k) FROM plain")
        read_without(db)
        db.sql("INSERT INTO t VALUES (5, 'd'); DROP VIEW held CASCADE")
        assert db.sql("SELECT n FROM counts WHERE v = 'd'").fetchall() == [(1,)]
    with pytest.raises(HeadraceError, match="could not be started"):
        headrace.connect(tmp_path / "new", **settings)


@pytest.mark.long
def test_epochs_of_few_changes_are_made_before_spark_runs(tmp_path, spark, monkeypatch) -> None:
    now = [1_700_000_000_000_000]
    settings = {"continuous": False, "partitions": 2, "clock": lambda: now[0]}

    def opened() -> Database:
        return headrace.connect(tmp_path, **settings)

    monkeypatch.setattr("headrace.interfaces.database.start_spark", lambda _settings: spark)
    with opened() as db:
        db.sql("CREATE TABLE c (k INT PRIMARY KEY, above INT, name STRING)")
        db.sql("CREATE STREAM s (k INT, v INT, t STRING, at TIMESTAMP)")
        for name, query in NARROW.items():
            kind = "WITH (on_error = 'quarantine') AS" if name == "careful" else "AS"
            db.sql(f"CREATE MATERIALIZED VIEW {name} {kind} {query}")
        db.sql("CREATE MATERIALIZED VIEW sounds AS SELECT soundex(name) AS n, k FROM c")
        add(db, (1, 5, "a"), (2, 6, "b"))
        db.sql("INSERT INTO c VALUES (1, 2, 'one'), (2, 3, 'two')")
        now[0] += 2 * MINUTE
        db.flush()

    monkeypatch.setattr("headrace.interfaces.database.start_spark", fails)
    with opened() as db:
        add(db, (1, 7, "c"), (3, 8, "a"))
        assert db.sql("SELECT n, v FROM sums WHERE k = 1").fetchall() == [(2, 12)]
        assert planned(db) == set()
        db.insert("c", [{"k": 3, "above": 4, "name": "three"}])
        with pytest.raises(HeadraceError, match="could not be started"):
            db.flush()

    monkeypatch.setattr("headrace.interfaces.database.start_spark", lambda _settings: spark)
    with opened() as db:
        now[0] += 2 * MINUTE
        db.flush()
        assert planned(db) == {"sounds"}
        assert "in this process" in str(db.sql("EXPLAIN MAINTENANCE VIEW best").fetchall())
        add(db, (1, 2**31 - 1, "é"))  # whose sum and upper case are in doubt here
        assert planned(db) >= {"words", "careful"}
        assert planned(db).isdisjoint({"joined", "different", "recent"})
        loop = db.parts.loop
        loop.widths.small_rows, loop.settings = 0, replace(loop.settings, small_rows=0)
        add(db, (2, 9, "d"))

    monkeypatch.setattr(
        "headrace.execution.engine.narrow.stored.digest_of_versions", lambda: b"another version"
    )
    with opened() as db:
        add(db, (2, 11, "f"))
        assert planned(db) >= {*NARROW}
        for name in choose(["words", "best", "careful"], [*NARROW, "sounds"]):
            assert db.sql(f"VERIFY {name}").to_arrow()["differences"].to_pylist() == [0]


@pytest.mark.long
def test_a_command_that_looks_up_rows_does_not_open_the_directory(tmp_path, spark, capsys) -> None:
    settings = {"spark": spark, "continuous": False, "partitions": 2}

    def opens(_target: object, _functions: object) -> Database:
        raise HeadraceError(Code.UNAVAILABLE, "it is opened")

    def asked(*statements: str) -> str:
        chosen = [part for statement in statements for part in ("-c", statement)]
        code = main(["--data", str(tmp_path), "sql", "--format", "csv", *chosen], opens)
        shown = capsys.readouterr()
        return shown.out.replace("\r", "") if code == 0 else shown.err

    with headrace.connect(tmp_path, **settings) as db:
        db.sql(
            "CREATE TABLE t (k INT PRIMARY KEY, v STRING); CREATE STREAM s (at TIMESTAMP);"
            "CREATE MATERIALIZED VIEW counts AS SELECT v, count(*) AS n FROM t GROUP BY v;"
            "CREATE MATERIALIZED VIEW recent AS SELECT at, count(*) AS n FROM s"
            " WHERE at > now() - INTERVAL 1 MINUTE GROUP BY at;"
            "CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS SELECT k FROM t;"
            "CREATE MATERIALIZED VIEW held AS SELECT k, v FROM t; CREATE INDEX by_v ON held (v);"
            "INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'b')"
        )
        db.flush()
        assert "it is opened" in asked("SELECT n FROM counts WHERE v = 'a'"), "it is in use"
    assert asked("SELECT n FROM counts WHERE v = 'a'") == "n\n2\n"
    one, two = "SELECT * FROM t WHERE k = 3;", "SELECT k FROM held WHERE v = 'b'"
    assert asked(one, two) == "k,v\n3,b\nk\n3\n"
    given = ["--data", str(tmp_path), "sql", "--format", "csv", "-c", one]
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED, *given], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["k,v", "3,b", "[]"], "a lookup takes as long as its imports"
    for other in (
        "SELECT * FROM counts",
        "SELECT n FROM counts WHERE v > 'a'",
        "SELECT n FROM counts WHERE n = 2",
        "SELECT n FROM nothing WHERE n = 2",
        "SELECT n FROM counts AS OF EPOCH 1 WHERE v = 'a'",
        "SELECT n FROM counts WHERE v = 'a' EMIT CHANGES",
        "SELECT k FROM late WHERE k = 1",
        "SELECT n FROM recent WHERE at = 1",
        "SHOW TABLES",
        "SELECT",
        r"\d",
    ):
        assert "it is opened" in asked(other), other
        assert "it is opened" in asked(one, other), other
    with headrace.connect(tmp_path, **settings) as db:
        db.sql("INSERT INTO t VALUES (4, 'c')")  # which no epoch has read
    assert "it is opened" in asked("SELECT n FROM counts WHERE v = 'a'")
    with headrace.connect(tmp_path, **settings) as db:
        db.flush()
        db.sql("ALTER MATERIALIZED VIEW counts SET (refresh = 'manual')")
    assert asked(two) == "k\n3\n"
    assert "it is opened" in asked("SELECT n FROM counts WHERE v = 'a'")
    assert "it is opened" in asked("SELECT * FROM t WHERE k = '3'"), "not of its column's type"
