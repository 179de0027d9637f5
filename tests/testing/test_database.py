"""Views tested with the fixture: rows in, rows and changes out, and the clock moved."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import HeadraceError
from headrace.testing.database import TestDatabase
from headrace.testing.prepared import PreparedDatabases
from headrace.tools.cli.command import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples/tested"

PROJECT = """
CREATE MATERIALIZED VIEW top AS SELECT user, spent FROM spent WHERE spent >= 20;
CREATE MATERIALIZED VIEW spent AS SELECT user, sum(amount) AS spent, max(share) AS share
  FROM orders GROUP BY user;
CREATE TABLE orders (id INT PRIMARY KEY, user STRING, amount INT, share DOUBLE,
  made TIMESTAMP DEFAULT now()) WITH (connector = 'kafka', topic = 'orders', format = 'json',
  'properties.bootstrap.servers' = 'broker:9092');
CREATE STREAM ratios (n INT, of INT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '1' MINUTE)
  ALLOWED LATENESS INTERVAL '1' HOUR;
CREATE MATERIALIZED VIEW divided WITH (on_error = 'quarantine') AS SELECT n, n / of AS ratio
  FROM ratios WHERE at > now() - INTERVAL '1' HOUR;
CREATE TABLE copied (user STRING, spent BIGINT);
CREATE SINK copying INTO copied FROM top;
"""


@pytest.fixture
def project(spark: SparkSession, headrace_db: TestDatabase) -> TestDatabase:
    """The project in an empty database."""
    del spark  # the database joins the session that is there
    return headrace_db.load(define=PROJECT, at="2026-03-01 12:00")


def failure(call, *given, **named):
    with pytest.raises(AssertionError) as caught:
        call(*given, **named)
    return str(caught.value)


def test_rows_are_compared_in_any_form_and_order(project):
    project.insert("orders", [{"id": 1, "user": "ann", "amount": 10, "share": 0.1}])
    project.insert("orders", [(2, "bob", 7, None, None), (3, "ann", 5, 0.3, None)])
    project.expect("spent", "user | spent\nbob | 7\nann | 15")
    project.expect("spent", [{"user": "ann", "spent": 15}, {"user": "bob", "spent": 7}])
    project.expect("spent", [("ann", 15, 0.3), ("bob", 7, None)])
    project.expect("spent", [{"share": 0.3000001}, {"share": None}], tolerance=1e-6)
    project.expect("SELECT sum(spent) AS n FROM spent", [{"n": 22}])
    project.expect("top", [])
    assert project.rows("top") == []
    assert failure(project.expect, "spent", "user | spent\nann | 14\neve | 7") == (
        "rows of spent differ at 2026-03-01 12:00:00 (epoch 8):"
        " 1 row missing (-), 1 row not expected (+), 1 row changed (~ expected → actual);"
        " 0 rows equal\n"
        "    user | spent\n"
        "  - eve  | 7\n"
        "  + bob  | 7\n"
        "  ~ ann  | 14 → 15"
    )
    with pytest.raises(HeadraceError, match='"spend" does not exist'):
        project.expect("spent", [{"spend": 1}])
    with pytest.raises(HeadraceError, match="expected row 1: column"):
        project.expect("spent", [{"spent": "many"}])


def test_changes_are_compared_by_epochs(project):
    project.insert("orders", "id | user | amount\n1 | ann | 20")
    project.insert("orders", "id | user | amount\n2 | bob | 30")
    project.epoch()
    project.delete("orders", [{"id": 2}])
    project.insert("orders", "id | user | amount\n1 | ann | 25")
    text = """
        +/- | user | spent
        +   | ann  | 20
        +   | bob  | 30
        -------------------
        -   | ann  | 20
        +   | ann  | 25
        -   | bob  | 30
    """
    project.expect_changes("top", text)
    project.expect_changes("top", [])
    project.expect("copied", [{"user": "ann", "spent": 25}])
    project.insert("orders", "id | user | amount\n3 | eve | 21")
    message = failure(project.expect_changes, "top", [(-1, {"user": "eve"}), (1, {"user": "joe"})])
    assert message.endswith("    +/- | user\n  - -   | eve\n  - +   | joe\n  + +   | eve")
    with pytest.raises(HeadraceError, match="has no row"):
        project.delete("orders", [{"id": 9}])
    with pytest.raises(HeadraceError, match="has no changelog"):
        project.changes("ratios")


def test_the_clock_is_that_of_views_of_writes_and_of_statements(project):
    project.sql("INSERT INTO ratios VALUES (1, 2, now())")
    project.insert("orders", "id | user\n1 | ann")
    project.expect("orders", "made\n2026-03-01 12:00:00")
    project.expect("divided", "n | ratio\n1 | 0.5")
    project.clock.advance("59 minutes 59 seconds")
    project.expect_changes("divided", "+/- | n\n+ | 1")
    project.clock.advance("1 second")
    project.expect_changes("divided", "+/- | n\n- | 1")
    project.expect("SELECT now() AS t", "t\n2026-03-01 13:00:00")
    assert str(project.watermark("ratios")) == "2026-03-01 11:59:00+00:00"


def test_late_and_failing_rows_are_seen(project):
    project.insert(
        "ratios", "n | of | at\n1 | 0 | 2026-03-01 12:00:00\n2 | 1 | 2026-03-01 10:00:00"
    )
    assert (project.late("ratios"), project.duplicates("ratios"), project.rejects("ratios")) == (
        1, 0, [],
    )  # fmt: skip
    (kept,) = project.quarantined("divided")
    assert (kept["relation"], kept["row"]["n"]) == ("ratios", 1)
    assert "zero" in kept["error"].lower()
    project.expect("divided", [])
    with pytest.raises(HeadraceError, match="is NULL in row 1"):
        project.insert("orders", [{"id": None}])


@pytest.mark.usefixtures("spark")
@pytest.mark.long
def test_a_view_alone_reads_tables_in_place_of_views(headrace_db):
    db = headrace_db.load(define=PROJECT, alone="top")
    db.insert("spent", [{"user": "ann", "spent": 20}, {"user": None, "spent": 30}])
    db.expect("top", [("ann", 20), (None, 30)])
    assert {name for _, name in db.database.relations()} == {"spent", "top"}
    with pytest.raises(HeadraceError, match="loaded already"):
        db.load(define=PROJECT)


@pytest.mark.usefixtures("spark")
@pytest.mark.long
@pytest.mark.parametrize("alone", ["", "summed"])
def test_a_view_alone_is_read_in_the_dialect_of_its_inputs(headrace_db, alone):
    db = headrace_db.load(
        define="CREATE STREAM k (n INT) WITH (kafka_topic = 'k', value_format = 'json');"
        "CREATE STREAM derived AS SELECT n FROM k WHERE n > 0;"
        "CREATE MATERIALIZED VIEW summed AS SELECT sum(n) AS s FROM derived;",
        alone=alone,
    )
    db.expect("summed", [{"s": 0}])  # of no rows it is NULL in Spark


@pytest.mark.usefixtures("spark")
def test_an_error_in_a_definition_has_its_place(headrace_db, tmp_path):
    (tmp_path / "v.sql").write_text("CREATE TABLE t (k INT);\nCREATE VIEW v AS\nSELECT j FROM t;")
    with pytest.raises(HeadraceError) as caught:
        headrace_db.load(tmp_path)
    assert f"{tmp_path}/v.sql:3:8" in str(caught.value)
    with pytest.raises(HeadraceError, match="no definitions are loaded"):
        headrace_db.rows("v")
    with pytest.raises(HeadraceError, match='view "w" does not exist'):
        headrace_db.load(tmp_path, only="w")


@pytest.mark.usefixtures("spark")
@pytest.mark.long
def test_functions_of_python_are_called(headrace_db):
    twice = headrace.function(
        "twice", lambda n: n * 2, returns="INT", arguments=["INT"], deterministic=True
    )
    text = "CREATE TABLE t (n INT); CREATE MATERIALIZED VIEW v AS SELECT twice(n) AS d FROM t;"
    db = headrace_db.load(define=text, functions=[twice])
    db.insert("t", [(4,)])
    db.expect("v", [(8,)])


@pytest.fixture
def prepared(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[], PreparedDatabases]]:
    """Makes prepared databases of processes that share a cache directory."""
    del spark  # the databases join the session that is there
    made: list[PreparedDatabases] = []

    def make() -> PreparedDatabases:
        found = PreparedDatabases()
        found.settings = headrace.interfaces.settings.Settings.of(
            {"continuous": False, "partitions": 1, "cache": str(tmp_path / "cache")}
        )
        found._foreign = False  # as in a process in which nobody else has started Spark
        made.append(found)
        return found

    yield make
    for each in made:
        each.close()


def test_a_second_process_needs_no_spark_for_what_the_first_has_planned(prepared, tmp_path):
    said = []
    for process in range(2):
        databases = prepared()
        databases.says = said.append
        for _ in range(2):
            db = TestDatabase(databases, tmp_path).load(define=PROJECT)
            db.insert("orders", [{"id": 1, "user": "ann", "amount": 30}])
            db.sql("INSERT INTO ratios VALUES (1, 2, TIMESTAMP '2026-01-01 00:00:00')")
            db.clock.advance("1 day")
            db.expect("top", [("ann", 30)])
            db.delete("orders", [{"id": 1}])
            db.expect("top", [])
            started = db.database.parts.engine.source.running is not None
            db.close()
        assert not started, f"process {process}"
        assert [what for what in said if what.startswith("planning")] == ["planning 3 views"]


@pytest.mark.usefixtures("spark")
def test_the_files_of_the_example_pass(capsys, tmp_path):
    report = tmp_path / "out" / "junit.xml"
    assert main(["test", str(EXAMPLE / "tests"), "--junit", str(report)]) == 0
    output = capsys.readouterr().out
    assert "5 passed in" in output
    assert 'tests="5" failures="0" errors="0"' in report.read_text()


@pytest.mark.usefixtures("spark")
@pytest.mark.long
def test_a_file_can_verify_its_views(tmp_path):
    file = tmp_path / "a.test.sql"
    file.write_text(
        """CREATE TABLE t (k INT PRIMARY KEY, v DOUBLE);
CREATE MATERIALIZED VIEW halved AS SELECT k, v / 2 AS v FROM t;
--@ test halved
INSERT INTO t VALUES (1, 10), (2, 0.3);
VERIFY halved;
SELECT sum(v) AS v FROM halved;
--| v
--| 5.15
"""
    )
    assert main(["test", str(file)]) == 0


@pytest.mark.usefixtures("spark")
@pytest.mark.long
def test_the_python_tests_of_the_example_pass(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = pytest.main(
        ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--import-mode=importlib", str(EXAMPLE)]
    )
    assert found == pytest.ExitCode.OK


@pytest.mark.usefixtures("spark")
def test_failures_of_a_file_are_shown_at_their_lines(tmp_path, capsys):
    file = tmp_path / "a.test.sql"
    file.write_text(
        """CREATE TABLE t (k INT PRIMARY KEY, v INT);
CREATE MATERIALIZED VIEW doubled AS SELECT k, v * 2 AS v FROM t;
INSERT INTO t VALUES (1, 10);

--@ test passes
--@ rows doubled
--| k | v
--| 1 | 20

--@ test differs
--@ rows doubled
--| k | v
--| 1 | 21

--@ test is refused
--@ insert t
--| k    | v
--| NULL | 1

--@ test fails otherwise
--@ error of another kind
INSERT INTO t VALUES (NULL, 1);

--@ test does not fail
--@ error is NULL
INSERT INTO t VALUES (2, 1);
"""
    )
    assert main(["test", str(file), "--junit", str(tmp_path / "j.xml")]) == 1
    output = capsys.readouterr().out
    assert "  ok    passes (" in output
    for line, text in (
        (11, "rows of doubled differ at 2026-01-01 00:00:00"),
        (16, 'error[invalid]: column "k" of table "t" is NULL in row 1'),
        (22, "the error has no 'of another kind':"),
        (26, "there was no error with 'is NULL'"),
    ):
        assert f"{file}:{line}: {text}" in output
    assert "~ 1 | 21 → 20" in output
    assert "1 passed, 4 failed in" in output
    assert 'tests="5" failures="3" errors="1"' in (tmp_path / "j.xml").read_text()
    assert main(["test", str(file), "-k", "PASSES"]) == 0
    assert "1 passed, 4 left out in" in capsys.readouterr().out


def test_decimals_are_exact(project):
    with pytest.raises(HeadraceError, match="expected row 1"):
        project.expect("spent", [{"spent": Decimal("1.5")}])
