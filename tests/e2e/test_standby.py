"""A process that waits for the end of the one that has the database open, and takes over."""

from __future__ import annotations

import threading
import time

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


def health(server):
    try:
        return server.client.get("/healthz").json["status"]
    except GONE:
        return None
