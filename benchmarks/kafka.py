"""Kafka: events per second beside the same rows from a file, and how fresh a view over a topic is.

The broker and the schema registry are those of the tests, on this machine, so they share its cores.
"""

from __future__ import annotations

import io
import json
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

import headrace
from benchmarks.counters import percentiles
from benchmarks.nexmark import dataset
from headrace.execution.runtime.step import log_share
from headrace.storage.log import read_range
from headrace.types import Offset
from servers.kafka import kafka
from servers.schema_registry import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers.kafka import Kafka

RATES = (10, 1_000, 10_000)
"""Events per second while freshness is measured."""
_PARTITIONS = 4
_PROBE_SECONDS = 0.05
_COLUMNS = "auction BIGINT, bidder BIGINT, price BIGINT, dateTime TIMESTAMP"
_VIEW = "SELECT auction, count(*) AS n, sum(price) AS total FROM bids GROUP BY auction"
_TIME = {"type": "long", "logicalType": "timestamp-millis"}
_AVRO = {
    "type": "record",
    "name": "bid",
    "fields": [
        *({"name": name, "type": "long"} for name in ("auction", "bidder", "price")),
        {"name": "dateTime", "type": _TIME},
    ],
}


def measure(directory: Path, events: int, seconds: float, partitions: int) -> dict[str, Any]:
    """Return events per second by source, and percentiles of freshness by rate.

    Raises:
        AssertionError: a view does not have every event.
    """
    data = dataset(directory, events, lean=True)
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(dir=directory)))
        broker = open_.enter_context(kafka(folder / "kafka"))
        url = open_.enter_context(registry())
        for topic in ("json", "avro"):
            broker.create(topic, _PARTITIONS)
        lines = data.bids.read_bytes().splitlines()
        _produce(broker, "json", iter(lines))
        _produce(broker, "avro", _encoded(url, lines))
        db = open_.enter_context(
            headrace.connect(folder / "db", partitions=partitions, continuous=True)
        )
        source = f"brokers = '{broker.address}', 'schema.registry.url' = '{url}'"
        declared = {
            "file": "",
            **{
                form: f" WITH (connector = 'kafka', topic = '{form}', format = '{form}', {source})"
                for form in ("json", "avro")
            },
        }
        for options in declared.values():  # once for the JVM
            _run(db, options, data.bids, len(lines))
        rates = {
            form: _run(db, options, data.bids, len(lines)) for form, options in declared.items()
        }
        fresh = [_freshness(db, broker, rate, seconds) for rate in RATES]
    return {"rows": len(lines), "rows_per_second": rates, "freshness": fresh}


def _produce(broker: Kafka, topic: str, values: Iterator[bytes]) -> None:
    settings = {"queue.buffering.max.messages": 10_000_000, "batch.size": 1 << 20}
    broker.produce(topic, ({"value": value} for value in values), **settings)


def _encoded(url: str, lines: list[bytes]) -> Iterator[bytes]:
    """Yield JSON lines as Avro, with the id of their schema."""
    client = SchemaRegistryClient({"url": url})
    id_ = client.register_schema("avro-value", Schema(json.dumps(_AVRO), "AVRO"))
    plain = {**_AVRO, "fields": [*_AVRO["fields"][:3], {"name": "dateTime", "type": "long"}]}
    schema = fastavro.parse_schema(plain)
    for n, line in enumerate(lines):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {**json.loads(line), "dateTime": n})
        yield b"\0" + id_.to_bytes(4, "big") + out.getvalue()


def _run(db: Any, source: str, file: Path, rows: int) -> int:
    """Return the rows per second from a file, or a topic, until a view shows them."""
    begun = time.perf_counter()
    db.sql(f"CREATE STREAM bids ({_COLUMNS}){source}")
    db.sql(f"CREATE MATERIALIZED VIEW answer AS {_VIEW}")
    if source:
        id_ = db.parts.reader.catalog.resolve("bids").id
        _until(lambda: db.parts.ledger.head.log_end(id_) >= rows)
    else:
        db.sql(f"COPY bids FROM '{file}'")
    db.flush()
    taken = time.perf_counter() - begun
    found = db.sql("SELECT sum(n) FROM answer").fetchall()
    if found != [(rows,)]:
        raise AssertionError(f"the view has {found} of {rows} events")
    db.sql("DROP MATERIALIZED VIEW answer; DROP STREAM bids")
    return round(rows / taken)


def _freshness(db: Any, broker: Kafka, rate: int, seconds: float) -> dict[str, Any]:
    """Return how long after events are produced a read by key shows them, at a rate of events.

    Also how long until they are in the log, which is all that is Kafka's part of it.
    """
    topic = broker.create(f"probe-{rate}", _PARTITIONS)
    db.sql(
        f"CREATE STREAM probe (k BIGINT, n BIGINT) WITH (connector = 'kafka', topic = '{topic}',"
        f" brokers = '{broker.address}')"
    )
    db.sql("CREATE MATERIALIZED VIEW latest AS SELECT k, max(n) AS n FROM probe GROUP BY k")
    sent: list[float] = []  # Unix seconds, as the log says when a segment was appended
    ended = threading.Event()

    def produce() -> None:
        producer = broker.producer()
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            due = int((time.perf_counter() - begun) * rate)
            for n in range(done, due):
                producer.produce(topic, b'{"k": %d, "n": 0}' % (1 + n % 1000))
            done = max(done, due)
            producer.produce(topic, b'{"k": 0, "n": %d}' % (len(sent) + 1), partition=0)
            sent.append(time.time())
            producer.poll(0)
            time.sleep(max(_PROBE_SECONDS, 1 / rate))
        producer.flush(30)
        ended.set()

    thread = threading.Thread(target=produce)
    thread.start()
    seen: list[float] = []
    reader = db.parts.reader
    while not ended.is_set() or len(seen) < len(sent):
        epoch = reader.published.epoch
        rows = db.sql("SELECT n FROM latest WHERE k = 0").fetchall()
        now = time.time()
        seen += [now - sent[n] for n in range(len(seen), rows[0][0] if rows else 0)]
        reader.wait_beyond(epoch, lambda: False, 0.05)
    thread.join()
    landed = [at - begun for at, begun in zip(_landed(db, "probe"), sent, strict=True)]
    db.sql("DROP MATERIALIZED VIEW latest; DROP STREAM probe")
    warm = len(seen) // 4
    return {"rate": rate, "landed": percentiles(landed[warm:]), **percentiles(seen[warm:])}


def _landed(db: Any, stream: str) -> list[float]:
    """Return when each event of key 0 was appended to the log of a stream, in Unix seconds."""
    id_ = db.parts.reader.catalog.resolve(stream).id
    share = log_share(db.parts.ledger, id_, Offset(0), db.parts.ledger.head.log_end(id_))
    found: list[float] = []
    for segment in share.segments:
        at = segment.range.first, segment.range.end
        batches = read_range(db.parts.log.directory, [segment], *at, ["k"])
        probes = sum(int(np.count_nonzero(batch["k"].to_numpy() == 0)) for batch in batches)
        found += [segment.appended_at] * probes
    return found


def _until(met: Callable[[], bool]) -> None:
    while not met():
        time.sleep(0.005)
