"""Commands that need no Spark start none, and import little: each runs in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.files.directories import DirectoryLock
from sessions import PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DEFINITIONS = """
CREATE TABLE t (id BIGINT PRIMARY KEY, kind STRING, price DECIMAL(10,2));
CREATE STREAM s (k INT, v INT);
CREATE FUNCTION twice(x INT) RETURNS INT RETURN x * 2;
CREATE MATERIALIZED VIEW totals AS
  SELECT kind, count(*) AS n, sum(price) AS price FROM t GROUP BY kind;
CREATE MATERIALIZED VIEW sums AS SELECT k, sum(twice(v)) AS v FROM s GROUP BY k;
CREATE INDEX by_kind ON t (kind);
CREATE VIEW cheap AS SELECT * FROM t WHERE price < 5;
"""
RUN = """
import json, sys
from headrace.tools.cli.command import main
code = main(sys.argv[1:])
pyspark = sys.modules.get("pyspark")
started = pyspark is not None and pyspark.SparkContext._gateway is not None
print(json.dumps({"code": code, "spark": started, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    place = tmp_path_factory.mktemp("unopened") / "db"
    with headrace.connect(place, spark=spark, partitions=PARTITIONS) as db:
        db.sql(DEFINITIONS)
        rows = ", ".join(f"({n}, '{'abc'[n % 3]}', {n}.50)" for n in range(30))
        db.sql(f"INSERT INTO t VALUES {rows}; INSERT INTO s VALUES (1, 2), (1, 3)")
        db.flush()
    (place.parent / "definitions.sql").write_text(DEFINITIONS)
    return place


def run(directory: Path, *arguments: str) -> tuple[str, str, dict[str, Any]]:
    """Run the command; return its output, its errors, and what its process has imported."""
    words = [sys.executable, "-c", RUN, "--data", str(directory), *arguments]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    *errors, found = done.stderr.splitlines()
    return done.stdout, "\n".join(errors), json.loads(found)


def test_plain_queries_of_a_directory_that_nobody_has_open_do_not_open_it(directory: Path):
    out, _, found = run(
        directory, "sql", "--format", "csv",
        "-c", "SELECT kind, count(*) FROM t WHERE price > 20 GROUP BY kind ORDER BY kind",
        "-c", "SELECT id, price FROM t WHERE id IN (3, 4, 99) AND kind = 'a'; SELECT max(n) FROM totals",
        "-c", "SELECT t.id, totals.n FROM t JOIN totals ON t.kind = totals.kind ORDER BY id LIMIT 1",
        "-c", "SELECT id FROM t WHERE id = 7",
        "-c", "SELECT k, sum(v) FROM s WHERE v IN (2, 3) GROUP BY k",
    )  # fmt: skip
    assert out.split() == [
        "kind,count(1)", "a,3", "b,3", "c,4", "id,price", "3,3.50", "max(n)", "10", "id,n", "0,10",
        "id", "7", "k,sum(v)", "1,5",
    ]  # fmt: skip
    assert found["code"] == 0
    assert not found["spark"]
    assert not {
        "headrace.interfaces.database",
        "headrace.execution.engine.engine",
        "headrace.io.connectors",
    } & {*found["modules"]}


def test_listings_of_a_directory_that_nobody_has_open_do_not_open_it(directory: Path):
    statements = [
        "SHOW VIEWS", "SHOW TABLES LIKE 't%'", "SHOW STREAMS", "SHOW MATERIALIZED VIEWS",
        "SHOW INDEXES", "DESCRIBE totals",
    ]  # fmt: skip
    given = [word for each in statements for word in ("-c", each)]
    out, _, found = run(directory, "sql", "--format", "json", *given)
    assert not {"headrace.interfaces.database", "duckdb"} & {*found["modules"]}
    with headrace.connect(directory, warm=False) as db:
        opened = [row for each in statements for row in db.sql(each).to_arrow().to_pylist()]
    assert list(map(json.loads, out.splitlines())) == opened
    assert {"name": "totals", "kind": "view", "key": "kind", "state": "running"} in opened


HEAVY = {"duckdb", "numpy", "pyarrow", "pyspark", "sqlalchemy", "headrace.storage.ledger", "pandas"}


@pytest.mark.parametrize(
    ("arguments", "most", "without"),
    [
        (("--help",), 300, HEAVY),
        (("sql", "--help"), 300, HEAVY),
        (("sql", "-c", "SHOW VIEWS"), 1000, {"duckdb", "pandas", "headrace.interfaces.database"}),
        (("sql", "-c", "SELECT max(id) FROM t"), 1000, {"pandas", "headrace.interfaces.database"}),
        (("sql", "-c", "SELECT * FROM t WHERE id = 1"), 1000, {"duckdb", "pandas"}),
        (("doctor", "--quick"), 950, {"duckdb", "pandas", "headrace.interfaces.database"}),
        (("plan", "{definitions}"), 1600, {"pandas", "duckdb", "headrace.interfaces.server"}),
    ],
)
def test_a_command_imports_only_what_it_needs(
    directory: Path, arguments: tuple[str, ...], most: int, without: set[str]
):
    file = directory.parent / "definitions.sql"
    _, errors, found = run(directory, *(each.format(definitions=file) for each in arguments))
    assert found["code"] == 0, errors
    assert not without & {*found["modules"]}
    assert len(found["modules"]) < most


@pytest.mark.parametrize(
    "arguments",
    [
        ("sql", "-c", "SHOW VIEWS; SHOW TABLES; SHOW EPOCHS; SHOW DIRTY; DESCRIBE totals"),
        ("plan", "{definitions}"),
        ("apply", "{definitions}"),
    ],
)
def test_what_only_looks_at_definitions_starts_no_spark(
    directory: Path, arguments: tuple[str, ...]
):
    file = directory.parent / "definitions.sql"
    out, errors, found = run(directory, *(each.format(definitions=file) for each in arguments))
    assert found["code"] == 0, errors
    assert out
    assert not found["spark"]


@pytest.mark.parametrize(
    "arguments", [("sql", "-c", "SHOW VIEWS"), ("plan", "{definitions}"), ("verify",), ("serve",)]
)
def test_that_a_directory_is_open_is_said_before_anything_is_imported(
    directory: Path, arguments: tuple[str, ...]
):
    file = directory.parent / "definitions.sql"
    with DirectoryLock(directory):
        _, errors, found = run(directory, *(each.format(definitions=file) for each in arguments))
    assert "is open for writing in process" in errors
    assert found["code"] == 1
    assert not HEAVY & {*found["modules"]}


def test_a_plain_query_of_a_database_that_was_just_opened_does_not_wait_for_spark(directory: Path):
    with headrace.connect(directory, warm=False) as db:
        assert (
            db.sql("SELECT kind, sum(price) FROM t GROUP BY kind HAVING count(*) > 90").fetchall()
            == []
        )
        assert db.sql("SELECT n FROM totals WHERE kind IN ('a', 'x')").fetchall() == [(10,)]
        assert db._lease.running is None
