"""A server that reads on another machine, by store and ledger, while another one writes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.files.directories import LEDGER
from headrace.interfaces.server.address import ListenAddress, Transport
from headrace.interfaces.server.proxy import RemoteServer
from headrace.interfaces.server.remote_reader import RemoteReader
from headrace.interfaces.settings import Settings
from headrace.storage.ledger import PostgresAddress
from headrace.tools.cli.command import main
from served import Client, served
from servers.s3 import served_bucket
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.spark

SETUP = (
    "CREATE TABLE items (k INT PRIMARY KEY, price INT);"
    "CREATE MATERIALIZED VIEW totals AS"
    " SELECT price, count(*) AS n FROM items GROUP BY price;"
    "INSERT INTO items VALUES (1, 10), (2, 20), (3, 10)"
)


@contextlib.contextmanager
def reading(directory: Path, where, settings: Settings, primary: str) -> Iterator[Client]:
    address = ListenAddress.of("127.0.0.1:0")
    bound = address.bound()
    known = ListenAddress("127.0.0.1", bound.getsockname()[1])
    server = RemoteServer(primary)
    mounted = settings.mounted
    with RemoteReader(directory, where, mounted, server, known, bound, Transport()):
        yield Client(known.port)


def lookup(client: Client, price: int):
    found = client.get("/v1/views/totals", key=price)
    assert found.status == 200, found.body
    return found.json["rows"]


def test_a_reader_answers_by_store_and_ledger_alone(tmp_path, spark, postgres_url, monkeypatch):
    with served_bucket("read") as bucket:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket["access_key_id"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket["secret_access_key"])
        url = f"s3://read/db?endpoint={bucket['endpoint']}&region={bucket['region']}"
        given = {"ledger": postgres_url, "partitions": 2}
        settings = Settings.of({**given, "cache": str(tmp_path / "reader")})
        cache, settings = settings.in_store(url)
        with headrace.connect(url, spark=spark, cache=str(tmp_path / "writer"), **given) as db:
            db.sql(SETUP)
            db.flush()
            where = PostgresAddress.of(postgres_url)
            with served(db) as server:
                primary = f"http://127.0.0.1:{server.client.port}"
                with reading(cache, where, settings, primary) as client:
                    assert lookup(client, 10) == [[10, 2]]
                    assert list((cache / "runs").iterdir()), "it has fetched them itself"
                    # What it does not answer is forwarded, and what was written is seen.
                    for n in range(3):
                        wrote = client.sql(f"INSERT INTO items VALUES ({10 + n}, 10)")
                        assert wrote.status == 200, wrote.body
                        assert client.rows("SELECT n FROM totals WHERE price = 10") == [[3 + n]]
                        assert lookup(client, 10) == [[10, 3 + n]]
                    server.server.close()
                    db.sql("INSERT INTO items VALUES (20, 20)")
                    db.flush()
                    until(lambda: lookup(client, 20) == [[20, 2]])
                    assert client.sql("SELECT 1").status == 503
                    assert client.get("/healthz").status == 200
                    ready = client.get("/readyz").json
                    assert ready == {"status": "ready", "epoch": db.last_epoch()}


def test_a_reader_of_the_same_directory_follows_relations_and_tokens(tmp_path, spark, capsys):
    place = tmp_path / "data"
    with headrace.connect(place, spark=spark, partitions=2) as db:
        db.sql(SETUP)
        db.flush()
        with served(db) as server:
            primary = f"http://127.0.0.1:{server.client.port}"
            with reading(place, place / LEDGER, Settings.of({}), primary) as client:
                assert lookup(client, 10) == [[10, 2]]
                db.sql("CREATE TABLE later (k INT PRIMARY KEY); INSERT INTO later VALUES (7)")
                db.flush()
                until(lambda: client.get("/v1/views/later", key=7).json.get("rows") == [[7]])
                secret = db.sql("CREATE TOKEN me").to_arrow()["secret"][0].as_py()
                db.sql("GRANT READER ON DATABASE TO me")
                until(lambda: client.get("/v1/views/totals", key=10).status == 401)
                assert lookup(client.having(secret), 10) == [[10, 2]]
    arguments = ["--data", str(place), "serve", "--reader-of", "db.example"]
    assert main(arguments) == 1
    assert '"db.example" is not the URL of a server' in capsys.readouterr().err
    assert main([*arguments, "--standby"]) == 2
