"""Group commit: what was acknowledged is there, once, wherever appends met."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import (
    EpochCommit,
    Ledger,
    NewObject,
    OffsetRange,
    ProducerPosition,
    prepare_directory,
)
from headrace.storage.log import Admitted, Append, Appender, SegmentWriter, read_range
from headrace.types import Epoch, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

A, B = RelationId(1), RelationId(2)


class Log:
    """A data directory with two streams, and an appender."""

    def __init__(self, directory: Path) -> None:
        prepare_directory(directory)
        self.directory = directory / "log"
        self.ledger = Ledger.open(directory / "ledger.db")
        self.ledger.acquire()
        assert (self.ledger.ids.relation(), self.ledger.ids.relation()) == (A, B)
        made = tuple(NewObject(i, f"s{i}", "stream", {}, (), ()) for i in (A, B))
        self.ledger.commit(EpochCommit(Epoch(0), "made", created=made))
        self.writer = SegmentWriter(self.directory)
        self.appender = Appender(self.writer, self.ledger)

    def append(self, relation: RelationId, values: list[int], **more: object) -> OffsetRange:
        asked = Append(relation, pa.table({"x": pa.array(values, pa.int64())}), **more)  # type: ignore[arg-type]
        return self.appender.append(asked)

    def rows(self, relation: RelationId) -> list[int]:
        end = self.ledger.head.log_end(relation)
        segments = self.ledger.log.segments(relation, Offset(0), end)
        batches = read_range(self.directory, segments, Offset(0), end)
        return [value for batch in batches for value in batch["x"].to_pylist()]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.writer.close()
    log.ledger.close()


def together(work: list[Callable[[], None]]) -> None:
    """Run functions at once, each on a thread."""
    failed: list[BaseException] = []

    def run(each: Callable[[], None]) -> None:
        try:
            each()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have the next turn wait for the event, so that the appends after it meet in one turn."""
    release, write = threading.Event(), SegmentWriter.write

    def waiting(writer: SegmentWriter, *tables: list[pa.Table]) -> object:
        release.wait(60)
        return write(writer, *tables)

    monkeypatch.setattr(SegmentWriter, "write", waiting)
    return release


def until(met: Callable[[], bool]) -> None:
    """Wait until a condition is met, of whose coming about nobody is notified."""
    for _ in range(60_000):
        if met():
            return
        time.sleep(0.001)
    raise AssertionError("it is not met")


def waiting(log: Log, count: int) -> None:
    """Wait until so many appends wait for a turn."""
    until(lambda: len(log.appender._waiting) >= count)


def test_every_append_is_where_it_was_said_to_be_in_few_transactions(log: Log) -> None:
    found: list[tuple[RelationId, list[int], OffsetRange]] = []

    def writer(number: int) -> None:
        relation = (A, B)[number % 2]
        for turn in range(25):
            values = [number * 1000 + turn] * (1 + turn % 3)
            found.append((relation, values, log.append(relation, values)))

    together([lambda n=n: writer(n) for n in range(8)])  # type: ignore[misc]
    rows = {relation: log.rows(relation) for relation in (A, B)}
    for relation, values, range_ in found:
        assert rows[relation][range_.first : range_.end] == values
    assert sum(map(len, rows.values())) == sum(len(values) for _, values, _ in found)
    for number in range(8):  # each writer's appends are in its order
        own = [x for x in rows[(A, B)[number % 2]] if x // 1000 == number]
        assert own == sorted(own)
    segments = sum(
        len(log.ledger.log.segments(r, Offset(0), log.ledger.head.log_end(r))) for r in (A, B)
    )
    assert segments < len(found)


def test_appends_that_meet_share_a_segment_and_a_repeated_one_takes_effect_once(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = held(monkeypatch)
    outcomes: dict[str, OffsetRange] = {}
    gone = RelationId(9)

    def first() -> None:
        outcomes["first"] = log.append(A, [0])

    def again(name: str, sequence: int) -> None:
        position = ProducerPosition("p", sequence)
        outcomes[name] = log.append(A, [sequence, sequence], producer=position)

    def dropped() -> None:
        with pytest.raises(HeadraceError, match="was dropped") as refused:
            log.append(gone, [5])
        assert refused.value.code is Code.CONFLICT

    def others() -> None:
        waiting(log, 4)
        release.set()

    def after(count: int, work: Callable[[], None]) -> Callable[[], None]:
        return lambda: (waiting(log, count), work())[1]

    leading = threading.Thread(target=first)
    leading.start()
    until(lambda: log.appender._committing)
    together(
        [
            lambda: again("one", 1),
            after(1, lambda: again("two", 2)),
            after(2, lambda: again("two again", 2)),
            after(3, dropped),
            others,
        ]
    )
    leading.join()
    assert log.rows(A) == [0, 1, 1, 2, 2]
    assert outcomes["one"] == OffsetRange(Offset(1), Offset(3))
    assert outcomes["two"] == OffsetRange(Offset(3), Offset(5))
    assert outcomes["two again"].rows == 0
    assert len(log.ledger.log.segments(A, Offset(0), Offset(5))) == 2
    assert log.append(A, [2, 2], producer=ProducerPosition("p", 2)).rows == 0
    assert log.ledger.producers.last(A, "p") == 2


def test_a_guard_sees_the_end_and_refuses_its_append_alone(log: Log) -> None:
    log.append(A, [1, 2])
    ends = []

    def guard(end: Offset) -> None:
        ends.append(end)
        raise HeadraceError(Code.CONFLICT, "overtaken")

    with pytest.raises(HeadraceError, match="overtaken"):
        log.append(A, [3], guard=guard)
    assert (
        log.append(A, [4], placed=lambda first: Admitted(pa.table({"x": [first * 10]}))).first == 2
    )
    assert (ends, log.rows(A)) == ([2], [1, 2, 20])


def test_others_wait_while_a_relation_is_closed_to_them(log: Log) -> None:
    done = threading.Event()

    def other() -> None:
        log.append(A, [2])
        done.set()

    thread = threading.Thread(target=other)
    with log.appender.closed(A):
        thread.start()
        log.append(A, [1])
        log.append(B, [7])
        with log.appender.closed(A):
            assert not done.wait(0.1)
        assert not done.wait(0.1)
    thread.join()
    assert (log.rows(A), log.rows(B)) == ([1, 2], [7])


def test_a_disk_that_fails_refuses_a_turn_and_the_next_one_goes_on(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(A, [1])

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("headrace.storage.log.appender.os.fdatasync", full)
        with pytest.raises(HeadraceError, match="could not be written") as refused:
            log.append(A, [2])
    assert refused.value.code is Code.UNAVAILABLE
    log.append(A, [3])
    assert log.rows(A) == [1, 3]
    files = {segment.file.name for segment in log.ledger.log.segments(A, Offset(0), Offset(2))}
    assert len(files) == 2  # where the failed file ends is not known, so no more goes there


def test_an_append_that_is_interrupted_ends_the_wait_of_all_that_share_its_turn(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CrashError(BaseException):
        pass

    def crash(_writer: SegmentWriter, *_tables: list[pa.Table]) -> None:
        raise CrashError

    with monkeypatch.context() as patched:
        patched.setattr(SegmentWriter, "write", crash)
        with pytest.raises(CrashError):
            log.append(A, [1])
    log.append(A, [2])
    assert log.rows(A) == [2]


def test_a_shared_file_stays_while_any_segment_in_it_is_needed(log: Log) -> None:
    for value in range(3):
        log.append(A, [value])
        log.append(B, [value])
    assert len(list(log.directory.iterdir())) == 1
    log.ledger.commit(EpochCommit(log.ledger.head.epoch, "drop", dropped=(A,)))
    assert not log.ledger.files.garbage().segments
    assert log.rows(B) == [0, 1, 2]
    log.ledger.commit(EpochCommit(log.ledger.head.epoch, "drop both", dropped=(B,)))
    (name,) = log.ledger.files.garbage().segments
    log.writer.close_pack(frozenset([name]))
    log.ledger.files.forget(log.ledger.files.garbage())
    assert not log.ledger.files.known().segments


def test_segments_of_any_size_are_read_back(log: Log) -> None:
    sizes = [1, 5000, 300_000, 2]
    for size in sizes:
        log.append(A, list(range(size)))
    wanted = Counter(value for size in sizes for value in range(size))
    assert Counter(log.rows(A)) == wanted
    assert len(list(log.directory.iterdir())) == 2  # the large one has a file of its own
