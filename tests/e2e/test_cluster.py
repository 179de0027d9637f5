"""A database on a standalone cluster of Spark, whose executors are other machines' as far as seen.

Each test starts a master, workers and a driver in a process of its own: one process has one Spark.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from servers.machine import Unavailable
from servers.spark_cluster import SparkCluster, spark_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "data").mkdir()
    try:
        with spark_cluster(tmp_path / "cluster") as running:
            yield running
    except Unavailable as reason:
        pytest.skip(f"no Spark cluster: {reason}")


def driver(cluster: SparkCluster, directory: Path, script: str, **environment: str) -> str:
    """Run a script in a new process, with ``connect`` to the cluster; return what it prints."""
    begin = f"""
        import os, headrace
        from headrace import HeadraceError
        def connect(**given):
            settings = dict(master={cluster.url!r}, partitions=2, continuous=False)
            return headrace.connect({str(directory)!r}, **settings | given)
    """
    whole = textwrap.dedent(begin) + textwrap.dedent(script)
    command = ["env", *(f"{k}={v}" for k, v in environment.items()), sys.executable, "-c", whole]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_an_executor_with_another_directory_is_refused_at_opening_and_loses_no_row(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    try:
        cluster.worker(2, apart=tmp_path / "data")
    except Unavailable as reason:
        pytest.skip(str(reason))
    said = driver(
        cluster,
        tmp_path / "data",
        """
        try:
            connect()
        except HeadraceError as error:
            print(error)
        import headrace.database
        headrace.database.require_executors = lambda *_: None  # as if it became so later
        with connect() as db:
            db.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
            db.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
            db.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
            try:
                db.flush()
            except HeadraceError as error:
                print(error)
            print("stopped", sorted(db.parts.loop.stopped()))
        with headrace.connect(db.directory, continuous=False) as db:
            print(db.sql("SELECT count(*) FROM m").fetchall())
        """,
    )
    opening, _, later = said.partition("error[unavailable]")[2].partition("error[unavailable]")
    assert f'data directory "{tmp_path / "data"}" of the driver is not that of executor' in opening
    assert "that a task wrote is not in the data directory" in later
    assert later.splitlines()[-2:] == ["stopped []", "[(3,)]"]


def test_views_on_a_cluster_equal_their_queries_and_deep_expressions_fit_the_stack(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    for _ in range(2):
        cluster.worker()
    deep = "v"
    for i in range(400):
        deep = f"CASE WHEN v = {i} THEN {i + 1} ELSE {deep} END"
    said = driver(
        cluster,
        tmp_path / "data",
        f"""
        with connect(executor_memory="600m") as db:
            db.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
            db.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
            db.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
            db.sql("CREATE MATERIALIZED VIEW d AS SELECT k, {deep} AS v FROM t")
            db.sql("INSERT INTO t VALUES (4, 1)")
            print(sorted(db.sql("SELECT v FROM d").fetchall()))
            print({{verdict for *_, verdict in db.sql("VERIFY").fetchall()}})
            print(db._spark.conf.get("spark.executor.memory"))
        """,
    )
    assert said.splitlines() == ["[(2,), (2,), (3,), (4,)]", "{'equal to batch'}", "600m"]


def test_what_a_cluster_lacks_is_said_at_opening(cluster: SparkCluster, tmp_path: Path) -> None:
    cluster.worker()
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    script = """
        try:
            connect()
        except HeadraceError as error:
            print(error)
    """
    missing = driver(cluster, tmp_path / "data", script, PYSPARK_PYTHON="/nowhere/python")
    assert 'interpreter "/nowhere/python" does not exist for executor' in missing
    lacking = driver(cluster, tmp_path / "data", script, PYSPARK_PYTHON=f"{bare}/bin/python")
    assert "package headrace cannot be imported by" in lacking
    assert "PYSPARK_PYTHON" in lacking
    none = driver(cluster, tmp_path / "data", script, HEADRACE_EXECUTOR_MEMORY="40g")
    assert "has granted no executor for 30 seconds" in none
    assert "40g of memory" in none
