"""Backups of whole databases: under load, with ids of retired events, in stores, over HTTP."""

from __future__ import annotations

import json
import threading
from contextlib import closing

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.storage.log import seen
from headrace.tools.cli.command import main
from served import served
from servers.s3 import served_bucket
from waiting import until

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE items (k INT PRIMARY KEY, price INT);
    CREATE STREAM events (k INT, v INT);
    CREATE MATERIALIZED VIEW sums AS
      SELECT e.k, count(*) AS n, sum(e.v * i.price) AS s FROM events e JOIN items i ON e.k = i.k
      GROUP BY e.k
"""
SUMS = "SELECT * FROM sums ORDER BY k"


def require_equal_to_batch(db):
    assert [row[-1] for row in db.sql("VERIFY").fetchall()] == ["equal to batch"]


@pytest.mark.long
def test_a_backup_under_load_is_restored_elsewhere_and_goes_on(tmp_path, spark, capsys):
    place, written, ended = tmp_path / "backups", [0], threading.Event()
    with headrace.connect(tmp_path / "data", spark=spark, history_epochs=2) as db:
        db.sql(TABLES)
        db.insert("items", [(k, k + 1) for k in range(4)])
        db.sql(f"BACKUP TO '{place}'")

        def load():
            with db.session() as session:
                while not ended.is_set():
                    n = written[0]
                    session.insert("events", [(i % 4, n) for i in range(8)])
                    written[0] = n + 1
                    if n % 4 == 0:
                        db.compact()

        writer = threading.Thread(target=load)
        writer.start()
        try:
            until(lambda: written[0] > 4)
            before = written[0]
            made = db.sql(f"BACKUP TO '{place}' WITH (keep = 1)")
            after = written[0] + 1
        finally:
            ended.set()
            writer.join()
        names = ("name", "epoch", "files_copied", "bytes_copied", "files_reused")
        assert made.columns == names
        ((name, epoch, *_),) = made.fetchall()
        assert [row[:2] for row in db.sql(f"SHOW BACKUPS IN '{place}'")] == [(name, epoch)]
    assert main(["restore", str(place), "--list", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == name
    assert main(["restore", str(place), "--data", str(tmp_path / "restored")]) == 0
    assert main(["--data", str(tmp_path / "restored"), "doctor"]) == 0
    with headrace.connect(tmp_path / "restored", spark=spark, continuous=False) as db:
        (rows,) = db.sql("SELECT count(*) FROM events").fetchall()[0]
        assert 8 * before <= rows <= 8 * after
        assert epoch <= db.last_epoch()
        require_equal_to_batch(db)
        db.insert("events", [(1, 1)])
        assert db.sql("SELECT sum(n) FROM sums").fetchall() == [(rows + 1,)]
        db.compact()
        assert main(["--data", str(tmp_path / "restored"), "doctor"]) == 0
        require_equal_to_batch(db)


def test_ids_of_retired_events_are_in_a_backup(tmp_path, spark, monkeypatch):
    monkeypatch.setattr(seen, "FILED_IDS", 4)
    place, minute = tmp_path / "backups", 60_000_000
    now = [minute * 60]

    def opened(directory):
        return headrace.connect(directory, spark=spark, continuous=False, clock=lambda: now[0])

    with opened(tmp_path / "data") as db:
        db.sql("""CREATE STREAM events (id STRING, at TIMESTAMP, WATERMARK FOR at AS at)
            DEDUPLICATE ON (id)""")
        for n in range(4):
            values = ", ".join(
                f"('{n}-{i}', TIMESTAMP '1970-01-01 00:{n:02}:00')" for i in range(6)
            )
            db.sql(f"INSERT INTO events VALUES {values}")
        db.sql("ALTER STREAM events SET (retention = '59 minutes')")
        db.compact()
        kept = db.sql("SELECT count(*) FROM events").fetchall()
        db.sql(f"BACKUP TO '{place}'")
        assert kept < [(24,)]
    assert main(["restore", str(place), "--data", str(tmp_path / "restored")]) == 0
    with opened(tmp_path / "restored") as db:
        db.sql("INSERT INTO events VALUES ('0-1', NULL), ('3-1', NULL), ('new', NULL)")
        assert db.sql("SELECT count(*) FROM events").fetchall() == [(kept[0][0] + 1,)]


@pytest.mark.long
def test_a_database_moves_to_a_store_and_back(tmp_path, spark, postgres_url, monkeypatch, capsys):
    with served_bucket("kept") as options:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["access_key_id"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret_access_key"])
        monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
        query = f"?endpoint={options['endpoint']}&region={options['region']}"
        backups, back = f"s3://kept/backups{query}", f"s3://kept/back{query}"
        store = f"s3://kept/data{query}"
        with headrace.connect(tmp_path / "data", spark=spark, continuous=False) as db:
            db.sql(TABLES)
            db.insert("items", [(k, k + 1) for k in range(4)])
            db.insert("events", [(k, k) for k in range(4)])
            expected = db.sql(SUMS).fetchall()
            first = db.sql(f"BACKUP TO '{backups}'").fetchall()[0]
            again = db.sql(f"BACKUP TO '{backups}' WITH (keep = 1)").fetchall()[0]
            assert (first[4], again[2]) == (0, 0)
        assert main(["restore", backups, "--data", store]) == 1
        assert "needs a ledger in PostgreSQL" in capsys.readouterr().err
        to_store = ["restore", backups, "--data", store, "--ledger", postgres_url]
        assert main(to_store) == 0
        assert main(to_store) == 1
        assert "is not empty" in capsys.readouterr().err
        with headrace.connect(store, spark=spark, ledger=postgres_url, continuous=False) as db:
            assert db.sql(SUMS).fetchall() == expected
            db.insert("events", [(2, 1)])
            expected = db.sql(SUMS).fetchall()
            require_equal_to_batch(db)
            with pytest.raises(HeadraceError, match="is in the store of the database"):
                db.sql(f"BACKUP TO 's3://kept/data/backups{query}'")
            db.sql(f"BACKUP TO '{back}'")
            assert main(["--data", store, "--ledger", postgres_url, "doctor"]) == 0
        assert main(["restore", back, "--data", str(tmp_path / "back")]) == 0
        with headrace.connect(tmp_path / "back", spark=spark, continuous=False) as db:
            assert db.sql(SUMS).fetchall() == expected
            db.insert("events", [(2, 1)])
            require_equal_to_batch(db)


def test_a_server_backs_up_below_the_directories_that_it_may(tmp_path, spark):
    with (
        headrace.connect(tmp_path / "data", spark=spark, continuous=False) as db,
        served(db, backup_roots=[tmp_path / "backups"]) as server,
        closing(headrace.connect(server.server.url)) as remote,
    ):
        db.sql("CREATE TABLE items (k INT PRIMARY KEY)")
        place = tmp_path / "backups/mill"
        (made,) = remote.sql(f"BACKUP TO 'file://{place}'").fetchall()
        assert [row[0] for row in remote.sql(f"SHOW BACKUPS IN '{place}'").fetchall()] == [made[0]]
        for statement in (
            f"BACKUP TO '{tmp_path}/other'",
            f"BACKUP TO '{tmp_path}/backups/../other'",
            f"SHOW BACKUPS IN '{tmp_path}'",
        ):
            with pytest.raises(HeadraceError, match="over HTTP") as error:
                remote.sql(statement)
            assert error.value.code is Code.UNSUPPORTED
        assert not (tmp_path / "other").exists()
