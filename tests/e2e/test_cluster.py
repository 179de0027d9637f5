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
from servers.s3 import served_bucket
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
        with connect(small_rows=0) as db:  # whose epochs are jobs
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


def test_executors_that_share_no_directory_work_through_an_object_store(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    try:
        for _ in range(2):
            cluster.worker(apart=tmp_path / "data")
    except Unavailable as reason:
        pytest.skip(str(reason))
    script = """
        with connect(small_rows=0) as db:
            db.sql("CREATE STREAM s (id INT, k INT, v INT) DEDUPLICATE ON (id)")
            db.sql("CREATE TABLE t (k INT PRIMARY KEY, name STRING)")
            db.sql("INSERT INTO t VALUES (0, 'a'), (1, 'b'), (2, 'c')")
            db.insert("s", [(i, i % 3, i) for i in range(300)])
            db.sql("CREATE MATERIALIZED VIEW m AS SELECT t.name, count(*) AS n, sum(s.v) AS v"
                   " FROM s JOIN t ON s.k = t.k GROUP BY t.name")
            db.sql("CREATE MATERIALIZED VIEW w AS SELECT * FROM (SELECT *, row_number() OVER"
                   " (PARTITION BY k ORDER BY v DESC) AS r FROM s) WHERE r <= 2")
            for n in range(3):
                db.insert("s", [(300 + 10 * n + i, i % 3, 1000 + i) for i in range(10)])
                db.sql("UPDATE t SET name = name || '+' WHERE k = 1")
                db.flush()
            print(db.sql("SELECT name, n FROM m ORDER BY name").fetchall())
            print({verdict for *_, verdict in db.sql("VERIFY").fetchall()})
            print({row["width"] for row in db.sql("SHOW EPOCHS").to_arrow().to_pylist()})
            db.compact()
            print({verdict for *_, verdict in db.sql("VERIFY").fetchall()})
    """
    with served_bucket("cluster") as options:
        url = f"s3://cluster/db?endpoint={options['endpoint']}&region={options['region']}"
        reached = {
            "HEADRACE_STORE": url,
            "AWS_ACCESS_KEY_ID": options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
        }
        said = driver(cluster, tmp_path / "data", script, **reached)
    found, verified, widths, compacted = said.splitlines()
    assert found == "[('a', 112), ('b+++', 109), ('c', 109)]"
    assert verified == compacted == "{'equal to batch'}"
    assert "wide" in widths


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
