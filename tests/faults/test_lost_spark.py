"""The JVM of Spark is killed: the database says so, and is opened again by the same process."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from killed_server import GONE, Killed
from servers.machine import free_port

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
    import os, signal, sys, time
    import headrace
    from headrace.execution.engine.jobs.session import jvm_of

    def opened():
        return headrace.connect(sys.argv[1], small_rows=10, partitions=1)

    with opened() as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.sql("CREATE MATERIALIZED VIEW s AS SELECT v % 2 AS g, count(*) AS n FROM t GROUP BY v % 2")
        db.insert("t", [(k, k) for k in range(20)])
        db.flush()
        os.kill(jvm_of(db.parts.engine.spark).pid, signal.SIGKILL)
        while db.lost is None:
            time.sleep(0.05)
        for change in (lambda: db.sql("CREATE TABLE u (k INT)"), db.flush):
            try:
                db.insert("t", [(k, k + 1) for k in range(20)])
                change()
            except headrace.HeadraceError as error:
                print(error.code, error.primary, error.detail)
    with opened() as db:
        print(sorted(map(tuple, db.sql("SELECT * FROM s").fetchall())))
        print(db.sql("VERIFY").fetchall()[0][-1])
"""


@pytest.mark.long
def test_a_database_whose_jvm_was_killed_is_opened_again_in_the_same_process(
    tmp_path: Path,
) -> None:
    found = subprocess.run(
        [sys.executable, "-c", dedent(PROGRAM), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    lost = "unavailable Spark has ended Its JVM was killed by SIGKILL."
    assert [line.removeprefix("Code.").lower() for line in lines[:-2]] == [lost.lower()] * 2
    assert lines[-2:] == ["[(0, 10), (1, 10)]", "equal to batch"]
    assert "Spark has ended" in found.stderr, "it is logged"


def again(server: Killed, statement: str) -> list[list[Any]]:
    """Run a statement until it succeeds; return its rows."""
    until, last = time.monotonic() + 120, ""
    while time.monotonic() < until:
        with suppress(*GONE):
            answer = server.client.sql(statement)
            if answer.status == 200:
                return answer.json["rows"]
            last = str(answer.body)
        time.sleep(0.2)
    raise AssertionError(last)


@pytest.mark.long
def test_a_server_whose_jvm_was_killed_starts_again(tmp_path: Path) -> None:
    server = Killed(tmp_path / "data", port=free_port(), errors=tmp_path / "log")
    server.start()
    try:
        began = time.monotonic()
        server.client.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        server.client.sql("CREATE MATERIALIZED VIEW s AS SELECT sum(v) AS s FROM t")
        server.client.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        time.sleep(max(0.0, 31 - (time.monotonic() - began)))
        assert server.process is not None
        assert server.kill_jvm()
        server.wait()
        assert again(server, "SELECT s FROM s") == [[3]]
        assert again(server, "VERIFY")[0][-1] == "equal to batch"
        assert "The server starts again." in (tmp_path / "log").read_text()
    finally:
        server.kill()


@pytest.mark.long
def test_a_server_whose_jvm_was_killed_while_it_started_starts_it_again(tmp_path: Path) -> None:
    server = Killed(tmp_path / "data", port=free_port(), errors=tmp_path / "log")
    server.start()
    try:
        server.client.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        server.client.sql("CREATE MATERIALIZED VIEW s AS SELECT sum(v) AS s FROM t")
        server.client.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        server.client.sql("SELECT s FROM s")
        server.kill()
        server.start()
        while not server.kill_jvm():
            time.sleep(0.01)
        assert again(server, "VERIFY")[0][-1] == "equal to batch"
        assert again(server, "SELECT s FROM s") == [[3]]
    finally:
        server.kill()
