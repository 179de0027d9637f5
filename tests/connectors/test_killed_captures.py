"""``kill -9`` of a process that follows PostgreSQL, around each part of a commit."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from headrace.algebra.zset import WEIGHT
from headrace.storage.ledger import Ledger
from headrace.storage.log import read_range
from headrace.types import Offset, RelationId
from length import choose, thorough

if TYPE_CHECKING:
    from servers.postgres import Postgres

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(400)

FOLLOWING = """
    import os, signal, sys, time
    from pathlib import Path
    from pyspark.sql.types import IntegerType
    from headrace.io.connectors.postgres import source
    from headrace.io.connectors.postgres.access import Access, connected
    from headrace.io.connectors.postgres.tables import CapturedTable, Reference
    from headrace.storage.ledger import EpochCommit, Ledger, NewObject, prepare_directory
    from headrace.storage.log import Appender, SegmentWriter, write_segment
    from headrace.execution.runtime.feeds import Feed
    from headrace.execution.runtime.feeds import JointIngest
    from headrace.types import Column, RelationId, Schema

    directory, port, name, stage, times = sys.argv[1:]
    directory, times = Path(directory), int(times)
    source._MOST_CHANGES = 40  # many small moments

    def reached(stage_of_ledger):
        global times
        if stage_of_ledger == stage:
            times -= 1
            if not times:
                os.kill(os.getpid(), signal.SIGKILL)

    prepare_directory(directory)
    ledger = Ledger.open(directory / "ledger.db", fault=lambda name: reached(name))
    ledger.acquire()
    kept, stage = stage, ""
    while len(ledger.relations.existing()) < 2:
        id_ = ledger.ids.relation()
        made = NewObject(id_, f"t{id_}", "table", {})
        ledger.commit(EpochCommit(ledger.head.epoch, f"made{id_}", created=(made,)))
    stage = kept
    appender = Appender(SegmentWriter(directory / "log"), ledger)

    class Log:
        def stage(self, rows):
            return write_segment(directory / "log", rows)

        def land_together(self, staged, appends):
            appender.append_together(staged, appends)

    schema = Schema((Column("id", IntegerType(), False), Column("v", IntegerType())))
    tables = [
        CapturedTable(RelationId(at), Reference("public", name), schema, ("id",))
        for at, name in enumerate("ab", 1)
    ]
    access = Access(host="127.0.0.1", port=int(port), database=name, user="postgres")
    with connected(access, str) as session:
        place = source.CaptureAddress(access, "p", f"slot_{name}", source.system_of(session))

    class Opened:
        def __init__(self):
            self.source = source.PostgresSource(place, tables, str)
            self.parts, self.close = self.source.moments, self.source.close

    ingest = JointIngest.of(Log(), ledger, "s", [table.relation for table in tables])

    def opened():
        ingest.begin()
        return Opened()

    feed = Feed(ingest, opened)
    feed.start("feed")
    session = connected(access, str).__enter__()
    session.execute("SELECT pg_logical_emit_message(true, 'test', '')")
    (wanted,) = session.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
    asked = "SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots WHERE slot_name = %s"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        read = session.execute(asked, (wanted, f"slot_{name}")).fetchone() == (True,)
        if read and None not in ingest.position.values():
            feed.close()
            sys.exit(0)
        time.sleep(0.02)
    sys.exit(f"not read: {feed}")
"""


def follow(directory: Path, server: Postgres, name: str, stage: str, times: int) -> int:
    """Follow the tables until all is read, or the process is killed; return its exit code."""
    arguments = [str(directory), str(server.port), name, stage, str(times)]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FOLLOWING), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=120,
        check=False,
    ).returncode


def contents(directory: Path, relation: int) -> tuple[dict[int, int], int]:
    """Return the rows of a table by its log, and the number of changes there."""
    with Ledger.open(directory / "ledger.db") as ledger:
        end = ledger.head.log_end(RelationId(relation))
        segments = ledger.log.segments(RelationId(relation), Offset(0), end)
    rows: dict[int, int] = {}
    for batch in read_range(directory / "log", segments, Offset(0), end):
        for change in batch.to_pylist():
            rows.pop(change["id"], None)
            if change[WEIGHT] > 0:
                rows[change["id"]] = change["v"]
    return rows, end


@pytest.mark.long
@pytest.mark.parametrize("stage", choose(["after commit"], ["before commit", "after commit"]))
def test_a_capture_that_is_killed_lands_every_transaction_once_and_whole(
    postgres_server: Postgres, tmp_path: Path, stage: str
) -> None:
    name = postgres_server.create(f"killed_{uuid4().hex[:8]}")
    changes = 0
    with postgres_server.connect(name) as session:
        session.execute("CREATE TABLE a (id int PRIMARY KEY, v int)")
        session.execute("CREATE TABLE b (id int PRIMARY KEY, v int)")
        session.execute("CREATE PUBLICATION p FOR ALL TABLES")
        session.execute(f"SELECT pg_create_logical_replication_slot('slot_{name}', 'pgoutput')")
        session.execute("INSERT INTO a SELECT n, 0 FROM generate_series(1, 30) n")
        session.execute("INSERT INTO b SELECT n, 0 FROM generate_series(1, 30) n")
        if thorough():
            assert follow(tmp_path, postgres_server, name, stage, 1) < 0  # as it lands the copies
        assert follow(tmp_path, postgres_server, name, "", 0) == 0
        for times in choose((2,), (1, 1, 2, 3)):
            for key in range(1, 31):
                with session.transaction():
                    session.execute("UPDATE a SET v = v + 1 WHERE id = %s", (key,))
                    session.execute("UPDATE b SET v = v - 1 WHERE id = %s", (key,))
            changes += 30
            assert follow(tmp_path, postgres_server, name, stage, times) < 0
            (a, _), (b, _) = contents(tmp_path, 1), contents(tmp_path, 2)
            assert {key: -v for key, v in a.items()} == b
            assert 0 < len({*a.values()}) <= 2
        assert follow(tmp_path, postgres_server, name, "", 0) == 0
        found, end = contents(tmp_path, 1)
        assert found == dict(session.execute("SELECT * FROM a").fetchall())
        assert contents(tmp_path, 2)[0] == dict(session.execute("SELECT * FROM b").fetchall())
        session.execute(f"SELECT pg_drop_replication_slot('slot_{name}')")
    assert end == 30 + changes
