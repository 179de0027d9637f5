"""A process that waits for the end of the one that has the database open, and takes over."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

import pytest

import headrace
from headrace.errors import HeadraceError
from killed_server import GONE, Killed
from servers.machine import free_port
from servers.s3 import served_bucket
from waiting import until

pytestmark = pytest.mark.spark


class Opening:
    """Opens a database on a thread of its own, and notes what it waits for."""

    def __init__(self, target, **settings):
        self.waited_for, self.database, self.error = [], None, None
        self.patient = True
        self._thread = threading.Thread(target=self._open, args=(target, settings), daemon=True)
        self._thread.start()

    def _open(self, target, settings):
        try:
            self.database = headrace.connect(target, standby=self._waits, **settings)
        except HeadraceError as error:
            self.error = error

    def _waits(self, error):
        self.waited_for.append(error)
        return self.patient

    def joined(self):
        self._thread.join(60)
        return self.database


def test_a_standby_opens_the_directory_as_soon_as_it_is_closed(tmp_path, spark):
    settings = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path, **settings) as first:
        first.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        standby, another = Opening(tmp_path, **settings), Opening(tmp_path, **settings)
        until(lambda: standby.waited_for and another.waited_for)
        another.patient = False
        assert another.joined() is None
        assert another.error is another.waited_for[-1]
        assert "is open in this process already" in another.error.primary
        first.sql("INSERT INTO t VALUES (1, 1)")
    with standby.joined() as second:
        assert second.sql("SELECT * FROM t").fetchall() == [(1, 1)]


@pytest.mark.long
def test_a_standby_has_the_files_of_a_store_before_it_takes_over(
    tmp_path, spark, postgres_url, monkeypatch
):
    with served_bucket("standby") as bucket:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket["access_key_id"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket["secret_access_key"])
        url = f"s3://standby/db?endpoint={bucket['endpoint']}&region={bucket['region']}"
        settings = {"spark": spark, "continuous": False, "partitions": 2, "ledger": postgres_url}
        with headrace.connect(url, cache=str(tmp_path / "one"), **settings) as first:
            first.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
            first.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(v) AS v FROM t")
            standby = Opening(url, cache=str(tmp_path / "two"), **settings)
            until(lambda: standby.waited_for)
            first.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
            first.flush()
            named = first.parts.ledger.files.known()

            def has_all():
                (place,) = (tmp_path / "two" / "stores").iterdir()
                packs = {path.name for path in (place / "runs").glob("*")}
                logs = {path.name for path in (place / "log").glob("*")}
                return named.packs <= packs and named.segments <= logs

            until(has_all)
            assert standby.database is None
        with standby.joined() as second:
            assert second.sql("SELECT * FROM m").fetchall() == [(2, 3)]
            assert second.sql("VERIFY m").fetchall()[0][-1] == "equal to batch"


@pytest.mark.long
def test_a_database_is_opened_and_serves_from_its_cache_while_the_store_does_not_answer(
    tmp_path, spark, postgres_url, monkeypatch
):
    settings = {"spark": spark, "continuous": False, "partitions": 2, "ledger": postgres_url}
    with served_bucket("standby") as bucket:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket["access_key_id"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket["secret_access_key"])
        url = f"s3://standby/db?endpoint={bucket['endpoint']}&region={bucket['region']}"
        with headrace.connect(url, cache=str(tmp_path / "one"), **settings) as first:
            first.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
            first.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
            first.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
            first.flush()
    with headrace.connect(url, cache=str(tmp_path / "one"), **settings) as second:
        assert second.sql("SELECT n FROM m WHERE v = 2").fetchall() == [(1,)]
        second.sql("INSERT INTO t VALUES (3, 2)")
        assert second.sql("SELECT n FROM m WHERE v = 2").fetchall() == [(2,)]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["directory", "store"])
def test_a_standby_serves_after_the_server_was_killed(where, tmp_path, request, capsys):
    with served_bucket("served") as bucket:
        data, environments = tmp_path / "data", [{}, {}]
        if where == "store":
            data = f"s3://served/db?endpoint={bucket['endpoint']}&region={bucket['region']}"
            environments = [
                {
                    "AWS_ACCESS_KEY_ID": bucket["access_key_id"],
                    "AWS_SECRET_ACCESS_KEY": bucket["secret_access_key"],
                    "HEADRACE_LEDGER": request.getfixturevalue("postgres_url"),
                    "HEADRACE_CACHE": str(tmp_path / name),
                }
                for name in ("one", "two")
            ]
        first, second = (Killed(data, each) for each in environments)
        second.port = free_port()
        try:
            first.start()
            view = "CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v"
            for sql in ("CREATE TABLE t (k INT PRIMARY KEY, v INT)", view):
                assert first.client.sql(sql).status == 200
            second.begin("--standby")
            until(lambda: health(second) == "standby", 60)
            for k in range(20):
                assert first.client.sql(f"INSERT INTO t VALUES ({k}, {k % 2})").status == 200
            first.kill()
            killed = time.monotonic()
            second.wait()
            query = "SELECT n FROM m WHERE v = 1"
            assert second.client.rows(query) == [[10]]
            with capsys.disabled():
                print(f"\n{where}: first answer {time.monotonic() - killed:.1f} s after the kill")
            assert second.client.sql("INSERT INTO t VALUES (100, 1)").status == 200
            assert second.client.rows(query) == [[11]]
        finally:
            for each in (first, second):
                if each.process is not None:
                    each.kill()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("ending", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_server_that_is_asked_to_end_ends_quietly_beside_a_wide_step(ending, code, tmp_path):
    """All its processes are asked to, as by who ends a service: the JVM ends before the server."""
    rows, errors = 400_000, tmp_path / "errors"
    server = Killed(tmp_path / "data", errors=errors)
    try:
        server.start()
        # The view compares all rows of a key with each other, so its step takes long.
        view = "SELECT count(*) AS n FROM s a JOIN s b ON a.k = b.k WHERE a.v * b.v % 1000 = 7"
        for sql in ("CREATE STREAM s (k INT, v BIGINT)", f"CREATE MATERIALIZED VIEW m AS {view}"):
            assert server.client.sql(sql).status == 200
        given = f"INSERT INTO s SELECT CAST(id % 20 AS INT), id FROM range({rows})"
        writing = threading.Thread(target=lambda: suppressed(server, given), daemon=True)
        writing.start()
        waits = (
            "SELECT waits_for FROM information_schema.freshness WHERE waits_for LIKE 'its step%'"
        )
        until(lambda: server.client.rows(waits), 120)
        asked = time.monotonic()
        os.killpg(server.process.pid, ending)
        assert server.process.wait(60) == code
        print(f"it has ended after {time.monotonic() - asked:.1f} s")
        writing.join()
        said = errors.read_text()
        assert "Traceback" not in said
        assert "EOFError" not in said
        with headrace.connect(tmp_path / "data", continuous=False) as db:
            db.sql("DROP MATERIALIZED VIEW m")
            assert db.sql("SELECT count(*) FROM s").fetchall() == [(rows,)]
    finally:
        if server.process is not None:
            server.kill()


def suppressed(server, statement):
    with suppress(*GONE):
        server.client.sql(statement)


def health(server):
    try:
        return server.client.get("/healthz").json["status"]
    except GONE:
        return None
