"""A database whose ledger is in PostgreSQL: opened by setting and option, and through a crash."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.tools.cli.command import main
from waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from servers.postgres import Postgres

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE orders (id INT, user STRING, amount INT, PRIMARY KEY (id));
    CREATE MATERIALIZED VIEW spent AS
      SELECT user, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY user
"""


def test_a_database_is_opened_by_setting_variable_and_option(
    tmp_path: Path,
    spark: SparkSession,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "d"
    with headrace.connect(place, spark=spark, partitions=2, ledger=postgres_url) as db:
        db.sql(TABLES)
        db.sql("INSERT INTO orders VALUES (1, 'ann', 10), (2, 'bob', 20), (3, 'ann', 5)")
        with pytest.raises(HeadraceError, match="is open for writing in process") as second:
            headrace.connect(place, spark=spark, ledger=postgres_url)
        assert second.value.code is Code.CONFLICT
    assert not (place / "ledger.db").exists()
    with pytest.raises(HeadraceError, match="belongs to another ledger"):
        headrace.connect(place, spark=spark)
    assert main(["--data", str(place), "--ledger", postgres_url, "token", "create", "me"]) == 0
    assert main(["--data", str(place), "token", "create", "you"]) == 1
    assert "belongs to another ledger" in capsys.readouterr().err
    assert (
        main(["--url", "http://127.0.0.1:1", "--ledger", postgres_url, "sql", "-c", "SELECT 1"])
        == 2
    )
    monkeypatch.setenv("HEADRACE_LEDGER", postgres_url)
    with headrace.connect(place, spark=spark, partitions=2) as db:
        rows = db.sql("SELECT * FROM spent ORDER BY user").to_arrow().to_pylist()
        assert rows == [
            {"user": "ann", "orders": 2, "total": 15},
            {"user": "bob", "orders": 1, "total": 20},
        ]
        db.sql("VERIFY")
        assert [row["name"] for row in db.sql("SHOW TOKENS").to_arrow().to_pylist()] == ["me"]


@pytest.mark.long
def test_every_acknowledged_row_is_there_once_after_the_server_was_killed_in_a_load(
    tmp_path: Path, spark: SparkSession, postgres_url: str, postgres_server: Postgres
) -> None:
    acknowledged: list[int] = []
    enough, restarted = threading.Event(), threading.Event()
    with headrace.connect(tmp_path / "d", spark=spark, partitions=2, ledger=postgres_url) as db:
        db.sql(TABLES)

        def load() -> None:
            for id_ in range(10_000):
                db.sql(f"INSERT INTO orders VALUES ({id_}, 'u{id_ % 3}', 1)")
                acknowledged.append(id_)
                if len(acknowledged) >= 10:
                    enough.set()
                if restarted.is_set() and len(acknowledged) >= 60:
                    return

        loading = threading.Thread(target=load)
        loading.start()
        for _ in range(2):
            assert enough.wait(60)
            postgres_server.kill()
            until(lambda: db.parts.ledger.trouble is not None)
            with pytest.raises(HeadraceError, match="did not answer"):
                db.parts.reader.require_ledger()
            postgres_server.start()
            until(lambda: db.parts.ledger.trouble is None)
            db.parts.reader.require_ledger()
        restarted.set()
        loading.join(120)
        assert not loading.is_alive()
        found = db.sql("SELECT id FROM orders ORDER BY id").to_arrow().column("id").to_pylist()
        assert found == acknowledged
        total = db.sql("SELECT sum(orders) AS n FROM spent").to_arrow().column("n").to_pylist()
        assert total == [len(acknowledged)]
        db.sql("VERIFY")
