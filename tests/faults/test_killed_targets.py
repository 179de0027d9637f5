"""``kill -9`` of a process that delivers to every kind of other system at once.

It is killed before and after a write to each of them, and at random moments; what the others do
then is killed in the middle. In the end stores and tables are the view, and what has every change
has each once, under one epoch. Readers of Kafka are those of committed messages.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.test_kafka_sink import committed
from faults.killing import SECONDS_ALLOWED, start
from faults.test_killed_sinks import added_up
from length import choose
from servers.cassandra import PASSWORD
from servers.dynamodb import own_dynamodb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.cassandra import Cassandra
    from servers.dynamodb import DynamoDB
    from servers.kafka import Kafka
    from servers.postgres import Postgres
    from servers.redis import Redis

DATABASE = "killed_targets"
FEEDER = Path(__file__).with_name("feeder.py")
KILLED_AT = (
    "to_kafka",
    "to_redis",
    "to_cassandra",
    "to_dynamodb",
    "to_delta",
    "to_iceberg",
    "to_totals",
    "to_changes",
)
STAGES = ("sink written", "sink")
ROUNDS = choose(1, 3)
"""How often the process dies at one of the stages of each of the sinks."""
RANDOM_KILLS = choose(2, 8)
BATCHES_PER_START = 2

Values = tuple[int, int, int]
"""An account, how many payments it has, and their sum."""
Changes = list[tuple[int, Values, int]]
"""Epochs, rows and weights."""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_each_target_has_whole_epochs_once_however_often_the_process_is_killed(
    tmp_path: Path,
    spark: SparkSession,
    broker: Kafka,
    postgres_server: Postgres,
    redis: Redis,
    cassandra_node: Cassandra,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("moto")
    postgres_server.create(DATABASE)
    data, log, moments = tmp_path / "data", tmp_path / "stages", random.Random(6)
    with own_dynamodb() as dynamo:
        places = {
            "postgres": [postgres_server.port, DATABASE],
            "kafka": broker.address,
            "redis": redis.port,
            "cassandra": cassandra_node.port,
            "dynamodb": dynamo.endpoint,
            "delta": "delta",
            "iceberg": "iceberg",
        }
        monkeypatch.setenv("FEEDER_TARGETS", json.dumps(places))
        monkeypatch.setenv("FEEDER_STAGES", str(log))
        monkeypatch.setenv("FEEDER_CASSANDRA", PASSWORD)
        monkeypatch.setenv("FEEDER_DYNAMODB", "test")
        sinks, _ = ended(data, BATCHES_PER_START, spark)
        asked = [
            (name, STAGES[(round_ + at) % 2])
            for round_ in range(ROUNDS)
            for at, name in enumerate(KILLED_AT)
        ]
        batches, died, within = BATCHES_PER_START, 0, Counter[str]()
        for name, stage in asked:
            batches += BATCHES_PER_START
            thread = f"sink-{sinks[name]}"
            feeder = start(FEEDER, data, batches, stage, "2", thread, spark=spark)
            output, _ = feeder.communicate(timeout=SECONDS_ALLOWED)
            assert feeder.returncode in (0, -signal.SIGKILL), output[-3000:]
            died += feeder.returncode == -signal.SIGKILL
            within += writing(log, sinks)
        assert died >= len(asked) * 3 // 4, "the faults were hardly ever reached"
        for _ in range(RANDOM_KILLS):
            batches += BATCHES_PER_START
            feeder = start(FEEDER, data, batches, spark=spark)
            assert feeder.stdout is not None
            output = "".join(takewhile(lambda line: line != "ready\n", feeder.stdout))
            time.sleep(moments.uniform(0.0, 3.0))
            feeder.send_signal(signal.SIGKILL)
            assert feeder.wait() == -signal.SIGKILL, output
            feeder.stdout.close()
            within += writing(log, sinks)
        print(f"{died + RANDOM_KILLS} kills; in the middle of a write were {dict(within)}")
        assert set(within) >= set(KILLED_AT), within
        _, held = ended(data, batches, spark)
        wanted = sorted((account, n, total) for account, n, total in held["totals"])
        rows = rows_of(postgres_server, redis, cassandra_node, dynamo, data)
        assert rows == dict.fromkeys(rows, wanted)
    changes = changes_of(postgres_server, broker, data)
    for name, found in changes.items():
        assert len(found) == len(set(found)), (name, "has a change twice")
        in_order = sorted(found, key=lambda change: (change[0], change[2]))
        assert added_up([(row, weight) for _, row, weight in in_order]) == wanted, name
    since = max(min(epoch for epoch, _, _ in found) for found in changes.values())
    later = {
        name: sorted(each for each in found if each[0] > since) for name, found in changes.items()
    }
    first = later["PostgreSQL"]
    assert first
    for name, found in later.items():
        assert found == first, (name, "has other epochs, or not whole ones")


def ended(data: Path, batches: int, spark: SparkSession) -> tuple[dict[str, int], dict[str, Any]]:
    """Run the feeder to its end; return the ids of the sinks, and what the views hold."""
    feeder = start(FEEDER, data, batches, spark=spark)
    output, _ = feeder.communicate(timeout=SECONDS_ALLOWED)
    assert feeder.returncode == 0, output[-3000:]
    said = [output.rpartition(f"\n{word} ")[2].partition("\n")[0] for word in ("sinks", "done")]
    sinks, held = map(json.loads, said)
    return sinks, held


def writing(log: Path, sinks: dict[str, int]) -> Counter[str]:
    """Return the sinks that were writing when the process died; begin the log anew."""
    last = dict(line.split(" ", 1) for line in log.read_text().splitlines())
    log.unlink()
    return Counter(name for name, id_ in sinks.items() if last.get(f"sink-{id_}") == "sink")


def rows_of(
    postgres: Postgres, redis: Redis, cassandra: Cassandra, dynamo: DynamoDB, data: Path
) -> dict[str, list[Values]]:
    """Return the rows of each target that has rows."""
    client = redis.client()
    items = [client.hgetall(key) for key in client.keys("killed:*")]
    stored = dynamo.client.scan(TableName="killed", ConsistentRead=True)["Items"]
    with postgres.connect(DATABASE) as session:
        rows = session.execute("SELECT account, n, total FROM totals ORDER BY 1").fetchall()
    return {
        "PostgreSQL": rows,
        "Redis": sorted((int(i["account"]), int(i["n"]), int(i["total"])) for i in items),
        "Cassandra": sorted(map(tuple, cassandra.query("SELECT account, n, total FROM k.killed"))),
        "DynamoDB": sorted(
            (int(i["account"]["N"]), int(i["n"]["N"]), int(i["total"]["N"]))
            for i in stored
            if "__deleted" not in i
        ),
        "Delta": [values(row) for row in of_delta(data / "sinks/delta/rows")],
        "Iceberg": [values(row) for row in of_iceberg(data / "sinks/iceberg", "k.held")],
    }


def changes_of(postgres: Postgres, broker: Kafka, data: Path) -> dict[str, Changes]:
    """Return the changes of each target that has changes."""
    messages = [json.loads(value or b"") for _, value, _ in committed(broker, "killed-changes")]
    with postgres.connect(DATABASE) as session:
        rows = session.execute(
            "SELECT headrace_epoch, account, n, total, headrace_weight FROM changes"
        ).fetchall()
    lakes = {
        "Delta": of_delta(data / "sinks/delta/changes"),
        "Iceberg": of_iceberg(data / "sinks/iceberg", "k.changes"),
    }
    return {
        "PostgreSQL": [(epoch, tuple(row), weight) for epoch, *row, weight in rows],
        "Kafka": [(each["epoch"], values(each["row"]), each["weight"]) for each in messages],
        **{
            name: [(r["headrace_epoch"], values(r), r["headrace_weight"]) for r in found]
            for name, found in lakes.items()
        },
    }


def values(row: dict[str, Any]) -> Values:
    return (row["account"], row["n"], row["total"])


def of_delta(place: Path) -> list[dict[str, Any]]:
    import deltalake

    found = deltalake.DeltaTable(place).to_pyarrow_table().to_pylist()
    return sorted(found, key=values)


def of_iceberg(place: Path, table: str) -> list[dict[str, Any]]:
    from pyiceberg.catalog.sql import SqlCatalog

    catalogue = SqlCatalog(
        "headrace", uri=f"sqlite:///{place}/catalog.db", warehouse=place.as_uri()
    )
    found = catalogue.load_table(table).scan().to_arrow().to_pylist()
    catalogue.close()
    return sorted(found, key=values)
