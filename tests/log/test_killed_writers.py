"""``kill -9`` of a process whose threads append together, around each part of a group commit."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from headrace.storage.ledger import Ledger
from headrace.storage.log import read_range
from headrace.types import Offset, RelationId
from length import choose

ROOT = Path(__file__).resolve().parents[2]
WRITERS = 8
STREAM = RelationId(1)

WRITING = """
    import os, signal, sys, threading
    from pathlib import Path
    import pyarrow as pa
    from headrace.storage.ledger import EpochCommit, Ledger, NewObject, ProducerPosition, prepare_directory
    from headrace.storage.log import Append, Appender, SegmentWriter

    directory, stage, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

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
        made = NewObject(id_, "s", "stream", {})
        kept, stage = stage, ""
        ledger.commit(EpochCommit(ledger.head.epoch, "made", created=(made,)))
        stage = kept
    write = SegmentWriter.write

    def writing(self, *tables):
        found = write(self, *tables)
        reached("written")
        return found

    SegmentWriter.write = writing
    appender = Appender(SegmentWriter(directory / "log"), ledger)
    acknowledged = os.open(directory / "acknowledged", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def run(writer):
        after = ledger.producers.last(1, f"w{writer}") or 0
        for number in range(after + 1, 60):
            rows = pa.table({"writer": [writer] * 2, "number": [number] * 2})
            appender.append(Append(1, rows, producer=ProducerPosition(f"w{writer}", number)))
            os.write(acknowledged, f"{writer} {number}\\n".encode())

    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def start(directory: Path, stage: str, times: int) -> int:
    """Run the writers until they are killed or have written everything; return the exit code."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WRITING), str(directory), stage, str(times)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=120,
        check=False,
    ).returncode


def stored(directory: Path) -> Counter[tuple[int, int]]:
    """Return how often each row is in the log, by writer and number."""
    with Ledger.open(directory / "ledger.db") as ledger:
        end = ledger.head.log_end(STREAM)
        segments = ledger.log.segments(STREAM, Offset(0), end)
        batches = read_range(directory / "log", segments, Offset(0), end)
        return Counter((row["writer"], row["number"]) for b in batches for row in b.to_pylist())


@pytest.mark.parametrize(
    "stage", choose(["before commit"], ["written", "before commit", "after commit"])
)
def test_writers_that_are_killed_together_lose_and_double_nothing(
    tmp_path: Path, stage: str
) -> None:
    for times in choose((4,), (1, 2, 3, 5, 8, 13, 21)):
        assert start(tmp_path, stage, times) < 0
        found = stored(tmp_path)
        file = tmp_path / "acknowledged"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        acknowledged = {tuple(map(int, line.split())) for line in lines}
        assert acknowledged <= found.keys()
        assert set(found.values()) <= {2}, "an append is there whole and once, or not at all"
        for writer in range(WRITERS):
            numbers = sorted(number for who, number in found if who == writer)
            assert numbers == list(range(1, len(numbers) + 1))
    assert start(tmp_path, "", 0) == 0
    wanted = {(writer, number): 2 for writer in range(WRITERS) for number in range(1, 60)}
    assert stored(tmp_path) == wanted
