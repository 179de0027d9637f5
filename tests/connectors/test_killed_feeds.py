"""``kill -9`` of a process that lands a Kafka topic or a directory, around each part of a commit."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.storage.ledger import Ledger
from headrace.storage.log import read_range
from headrace.types import Offset, RelationId
from length import choose

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = 3000
pytestmark = pytest.mark.timeout(400)

LANDING = """
    import os, signal, sys, threading, time
    from pathlib import Path
    import pyarrow as pa
    from pyspark.sql.types import LongType
    from headrace.storage.ledger import EpochCommit, Ledger, NewObject, prepare_directory
    from headrace.storage.log import Append, Appender, SegmentWriter
    from headrace.execution.runtime.feeds import Feed
    from headrace.execution.runtime.feeds import Ingest
    from headrace.types import Column, Schema

    directory, place, name, stage, times, wanted = sys.argv[1:]
    directory, times, wanted = Path(directory), int(times), int(wanted)

    def reached(name):
        global times
        if name == stage:
            times -= 1
            if not times:
                os.kill(os.getpid(), signal.SIGKILL)

    prepare_directory(directory)
    ledger = Ledger.open(directory / "ledger.db", fault=lambda name: reached(name))
    ledger.acquire()
    if not ledger.relations.existing():
        id_ = ledger.ids.relation()
        kept, stage = stage, ""
        made = NewObject(id_, "s", "stream", {})
        ledger.commit(EpochCommit(ledger.head.epoch, "made", created=(made,)))
        stage = kept
    appender = Appender(SegmentWriter(directory / "log"), ledger)

    def append(rows, *, load, rejects):
        return appender.append(Append(1, rows, load, None, rejects)).end

    schema = Schema((Column("n", LongType()),))
    SOURCE

    feed = Feed(Ingest.of(ledger, 1, opened().identity, append), opened)
    feed.start("feed")
    while ledger.head.log_end(1) < wanted:
        time.sleep(0.01)
    feed.close()
"""
KAFKA = """
    from headrace.io.connectors.kafka import client, source as kafka
    from headrace.io.formats.upserts import Appended
    from headrace.io.formats.messages import JsonMessages
    kafka._MOST_MESSAGES = client._AT_ONCE = client._MADE_AT_ONCE = 100  # many small parts
    options = kafka.Options(brokers=place, topic=name)
    def opened():
        return kafka.KafkaSource(
            options, kafka.MessageColumns(schema, schema), Appended(JsonMessages(schema)), str
        )
"""
DIRECTORY = """
    from headrace.io.connectors.files import source as file_source
    from headrace.io.connectors.files import watched as filesystem
    from headrace.io.formats import blocks
    blocks.BLOCK_BYTES = 1000  # many small parts, also of one file
    file_source.CHUNK_ROWS = filesystem.CHUNK_ROWS = 1
    options = filesystem.Options(place, settle=0.0, interval=0.01)
    def opened():
        columns = filesystem.FileColumns(schema, schema)
        return filesystem.DirectorySource(options, columns, lambda of: ledger.loads.notes(1, of))
"""


def land(directory: Path, source: str, place: str, name: str, stage: str, times: int) -> int:
    """Land a source until everything is there, or the process is killed; return its exit code."""
    arguments = [str(directory), place, name, stage, str(times), str(MESSAGES)]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LANDING.replace("    SOURCE", source)), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=120,
        check=False,
    ).returncode


@pytest.mark.parametrize("stage", choose(["before commit"], ["before commit", "after commit"]))
def test_a_feed_that_is_killed_lands_every_message_once(broker, tmp_path: Path, stage: str) -> None:
    topic = broker.create(f"killed-{uuid4().hex[:8]}", 3)
    broker.produce(topic, ({"value": b'{"n": %d}' % n} for n in range(MESSAGES)))
    for times in choose((5,), (1, 2, 5, 9)):
        assert land(tmp_path, KAFKA, broker.address, topic, stage, times) < 0
    assert land(tmp_path, KAFKA, broker.address, topic, "", 0) == 0
    assert landed(tmp_path) == list(range(MESSAGES))


@pytest.mark.long
@pytest.mark.parametrize("stage", choose(["after commit"], ["before commit", "after commit"]))
def test_files_of_a_directory_are_landed_once(tmp_path: Path, stage: str) -> None:
    place = tmp_path / "in"
    place.mkdir()
    ends = [0, 1, 1000, 1010, 2000, MESSAGES]
    for first, end in pairwise(ends):
        lines = "".join(f'{{"n": {n}}}\n' for n in range(first, end))
        (place / f"{first}.jsonl").write_text(lines)
    for times in choose((5,), (1, 2, 5, 9, 20)):
        assert land(tmp_path / "d", DIRECTORY, str(place), "", stage, times) < 0
    assert land(tmp_path / "d", DIRECTORY, str(place), "", "", 0) == 0
    assert landed(tmp_path / "d") == list(range(MESSAGES))


def landed(directory: Path) -> list[int]:
    """The numbers in the log of the only relation, in order."""
    with Ledger.open(directory / "ledger.db") as ledger:
        end = ledger.head.log_end(RelationId(1))
        segments = ledger.log.segments(RelationId(1), Offset(0), end)
    batches = read_range(directory / "log", segments, Offset(0), end)
    return sorted(value for batch in batches for value in batch["n"].to_pylist())
