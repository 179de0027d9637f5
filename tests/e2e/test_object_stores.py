"""A database whose files are in an object store: its directory may be lost."""

from __future__ import annotations

import re
import shutil
import threading
from contextlib import ExitStack

import pytest

import headrace
from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError
from headrace.files import ObjectStore, mounts
from headrace.files.bundles import bundle_of, object_of
from headrace.storage.log.segments import forget_segments
from headrace.tools.cli.command import main
from served import served
from servers.azurite import azurite
from servers.machine import Unavailable
from servers.s3 import served_bucket

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def bucket():
    with served_bucket("kept") as options:
        yield options


@pytest.fixture
def url(bucket, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket["secret_access_key"])
    return f"s3://kept/{tmp_path.name}?endpoint={bucket['endpoint']}&region={bucket['region']}"


def lose_files(directory):
    for folder in mounts.FOLDERS:
        shutil.rmtree(directory / folder, ignore_errors=True)
    forget_runs()
    forget_segments()


@pytest.mark.long
def test_a_database_goes_on_where_only_its_ledger_is_left(tmp_path, url, spark):
    directory = tmp_path / "data"
    with headrace.connect(directory, spark=spark, store=url, continuous=False) as db:
        db.sql("CREATE STREAM events (id STRING, k INT, v INT) DEDUPLICATE ON (id)")
        db.sql("CREATE TABLE items (k INT PRIMARY KEY, price INT)")
        db.sql("""CREATE MATERIALIZED VIEW sums AS
          SELECT e.k, count(*) AS n, sum(e.v * i.price) AS s FROM events e JOIN items i ON e.k = i.k
          GROUP BY e.k""")
        db.insert("items", [(k, k + 1) for k in range(4)])
        for n in range(3):
            db.insert("events", [(f"{n}-{i}", i % 4, i) for i in range(40)])
            db.sql("SELECT * FROM sums").fetchall()
        found = db.sql("SELECT * FROM sums ORDER BY k").fetchall()
        db.compact()
    lose_files(directory)
    # The store is known from the ledger.
    with headrace.connect(directory, spark=spark, continuous=False) as db:
        assert db.sql("SELECT * FROM sums ORDER BY k").fetchall() == found
        assert list((directory / "runs").iterdir())
        db.insert("events", [("2-1", 1, 1), ("new", 1, 1)])
        db.parts.loop.widths.small_rows = 0
        assert db.sql("SELECT n FROM sums WHERE k = 1").fetchall() == [(31,)]
        assert db.sql("VERIFY sums").fetchall()[0][-1] == "equal to batch"
        db.compact()
        mounts.upload(directory.resolve())
        kept = db.parts.ledger.files.known()
        store = mounts.store_of(directory.resolve())
        for folder, names in (("runs", kept.packs), ("log", kept.segments)):
            there = {name.partition("/")[2] for name, _ in store.names(f"{folder}/")}
            bundles = {object_of(bundle) for name in names if (bundle := bundle_of(name))}
            assert bundles & there
            assert there <= names | bundles


def test_a_store_that_is_away_stops_writers_and_not_readers(tmp_path, url, spark, monkeypatch):
    away = threading.Event()
    put = ObjectStore.put

    def put_unless_away(self, name, file):
        if away.is_set():
            raise HeadraceError(Code.UNAVAILABLE, "the store did not answer")
        put(self, name, file)

    monkeypatch.setattr(ObjectStore, "put", put_unless_away)
    directory = tmp_path / "data"
    with headrace.connect(directory, spark=spark, store=url, continuous=False) as db:
        db.sql("CREATE STREAM events (k INT, v INT)")
        db.sql("CREATE MATERIALIZED VIEW n AS SELECT k, count(*) AS n FROM events GROUP BY k")
        db.insert("events", [(1, 1), (1, 2)])
        assert db.sql("SELECT n FROM n WHERE k = 1").fetchall() == [(2,)]
        db.insert("events", [(1, 3)])
        away.set()
        db.insert("events", [(1, 3)])
        assert db.sql("SELECT n FROM n WHERE k = 1").fetchall() == [(4,)]
        db.insert("events", [(1, 3)])
        with pytest.raises(HeadraceError, match="did not answer"):
            mounts.upload(directory.resolve())
        db._uploads._since -= mounts.WAITS_SECONDS  # from now on, small files do not wait
        with pytest.raises(HeadraceError, match="did not answer"):
            db.insert("events", [(1, 4)])
        with pytest.raises(HeadraceError, match="did not answer"):
            db.sql("REFRESH")
        with db.session() as reader:
            reader.sql("SET consistency = 'latest'")
            assert reader.sql("SELECT n FROM n WHERE k = 1").fetchall() == [(4,)]
        away.clear()
        mounts.upload(directory.resolve())
        assert db.sql("SELECT n FROM n WHERE k = 1").fetchall() == [(5,)]
        assert db.sql("VERIFY n").fetchall()[0][-1] == "equal to batch"


def test_changes_and_epochs_of_a_second_are_two_requests(tmp_path, url, spark):
    with headrace.connect(tmp_path / "data", spark=spark, store=url, continuous=False) as db:
        db.sql("CREATE TABLE items (k INT PRIMARY KEY, price INT)")
        for n in range(4):
            db.sql(f"CREATE MATERIALIZED VIEW v{n} AS SELECT k, price + {n} AS p FROM items")
        db.insert("items", [(1, 1)])
        db.flush()
        sent = mounts.store_of(db.directory.resolve()).requests
        with db._uploads.paused():
            mounts.upload(db.directory.resolve())
            before = sent.puts
            for k in range(3):
                db.insert("items", [(2 + k, 1)])
                db.flush()
            assert sent.puts == before
            with served(db) as server:
                text = server.client.get("/metrics").body.decode()
            waiting = re.search(r"^headrace_store_waiting_bytes (\S+)", text, re.MULTILINE)
            assert float(waiting[1]) > 0
            mounts.upload(db.directory.resolve())
            assert sent.puts == before + 2
        epochs = db.sql("SHOW EPOCHS").to_arrow().to_pylist()[:3]
        assert [epoch["files"] for epoch in epochs] == [1, 1, 1]
        with served(db) as server:
            text = server.client.get("/metrics").body.decode()
        assert f'headrace_store_requests_total{{kind="put"}} {float(sent.puts)}' in text
        assert f'headrace_store_bytes_total{{kind="put"}} {float(sent.bytes_put)}' in text


@pytest.mark.long
def test_the_store_of_a_database_is_fixed(tmp_path, url, spark):
    with headrace.connect(tmp_path / "kept", spark=spark, store=url, continuous=False) as db:
        db.sql("CREATE TABLE items (k INT PRIMARY KEY)")
        db.insert("items", [(1,)])
    for _ in range(2):
        with pytest.raises(HeadraceError, match="has files of another database"):
            headrace.connect(tmp_path / "another", spark=spark, store=url, continuous=False)
    with headrace.connect(tmp_path / "kept", spark=spark, continuous=False) as db:
        assert db.sql("SELECT k FROM items").fetchall() == [(1,)]
    with pytest.raises(HeadraceError, match='setting "store" cannot be'):
        headrace.connect(tmp_path / "kept", spark=spark, store="s3://other/prefix")
    with headrace.connect(tmp_path / "local", spark=spark, continuous=False):
        pass
    with pytest.raises(HeadraceError, match="in the directory"):
        headrace.connect(tmp_path / "local", spark=spark, store=url)


def test_a_database_at_the_url_of_a_store_opens_on_any_machine(
    tmp_path, url, spark, postgres_url, monkeypatch, capsys
):
    with pytest.raises(HeadraceError, match="needs a ledger in PostgreSQL"):
        headrace.connect(url, spark=spark)
    with pytest.raises(HeadraceError, match='setting "store" cannot be'):
        headrace.connect(url, spark=spark, ledger=postgres_url, store="s3://other/prefix")

    def opened(machine, **more):
        cache = str(tmp_path / machine)
        return headrace.connect(
            url, spark=spark, ledger=postgres_url, cache=cache, continuous=False, **more
        )

    with opened("one", partitions=2) as db:
        db.sql("CREATE TABLE items (k INT PRIMARY KEY, price INT)")
        db.sql("CREATE MATERIALIZED VIEW dear AS SELECT count(*) AS n, sum(price) AS s FROM items")
        db.insert("items", [(k, k) for k in range(10)])
        assert db.sql("SELECT * FROM dear").fetchall() == [(10, 45)]
        assert db.directory.is_relative_to(tmp_path / "one")
        with pytest.raises(HeadraceError, match="is open for writing in process"):
            opened("two")
    with opened("two") as db:
        assert db.sql("SELECT * FROM dear").fetchall() == [(10, 45)]
        db.insert("items", [(10, 5)])
        assert db.sql("VERIFY dear").fetchall()[0][-1] == "equal to batch"
    with opened("one") as db:
        assert db.sql("SELECT * FROM dear").fetchall() == [(11, 50)]
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "three"))
    arguments = ["--data", url, "--ledger", postgres_url]
    assert main([*arguments, "token", "create", "me"]) == 0
    assert main([*arguments[:2], "token", "create", "you"]) == 1
    assert "needs a ledger in PostgreSQL" in capsys.readouterr().err


@pytest.mark.long
def test_a_database_is_in_azure(tmp_path, spark, postgres_url, monkeypatch):
    with ExitStack() as stack:
        try:
            options = stack.enter_context(azurite(tmp_path / "azure", "kept"))
        except Unavailable as reason:
            pytest.skip(str(reason))
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", options["account_name"])
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", options["account_key"])
        url = f"az://kept/deep/db?endpoint={options['endpoint']}"
        for machine in ("one", "two"):
            settings = {"ledger": postgres_url, "cache": str(tmp_path / machine)}
            with headrace.connect(
                url, spark=spark, continuous=False, partitions=2, **settings
            ) as db:
                if machine == "one":
                    db.sql("CREATE TABLE items (k INT PRIMARY KEY, price INT)")
                    db.sql("CREATE MATERIALIZED VIEW dear AS SELECT sum(price) AS s FROM items")
                db.insert("items", [(ord(machine[0]), 1)])
                assert db.sql("SELECT s FROM dear").fetchall() == [(1 + (machine == "two"),)]
                assert db.sql("VERIFY dear").fetchall()[0][-1] == "equal to batch"
