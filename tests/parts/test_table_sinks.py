"""A sink into a table: an epoch is appended in parts, and read, or lost in a crash, as a whole."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql.types import LongType
from sqlalchemy import event

from headrace.errors import HeadraceError
from headrace.execution.runtime.deliveries import Delivery, DeliverySettings
from headrace.execution.runtime.delivery_position import DeliveryPosition
from headrace.lifecycle.inputs.admission import Admission
from headrace.lifecycle.inputs.log import Log
from headrace.lifecycle.inputs.sinks import TableWriter
from headrace.planning.catalog import Declaration, Stream
from headrace.storage.ledger import EpochCommit, NewObject, ProducerPosition
from headrace.storage.log import Append, Appender, read_range
from headrace.types import Column, Offset, Schema
from length import each
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.execution.runtime.ports import Changelog
    from headrace.planning.catalog import Sink, Table, View
    from headrace.storage.ledger import SegmentFile
    from headrace.types import Epoch

_MOST = 3


class Killed(BaseException):
    """The process has ended here."""


@dataclass
class Cut:
    """A changelog in which the process ends after so many parts, if it does."""

    changelog: Changelog
    left: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.changelog, name)

    def snapshot(self, epoch: Epoch, most: int) -> Iterator[pa.Table]:
        yield from self._cut(self.changelog.snapshot(epoch, most))

    def delta(self, after: Epoch, upto: Epoch, most: int) -> Iterator[pa.Table]:
        yield from self._cut(self.changelog.delta(after, upto, most))

    def _cut(self, parts: Any) -> Iterator[pa.Table]:
        for part in parts:
            if self.left is not None:
                if not self.left:
                    raise Killed
                self.left -= 1
            yield part


@dataclass
class Copied:
    """A view whose changes a sink writes into a table, in a directory that is opened again."""

    db: PureDatabase
    table: Table
    view: View
    target: Table
    sink: Sink
    delivery: Delivery
    changelog: Cut

    @classmethod
    def opened(cls, directory: Path, former: Copied | None = None) -> Copied:
        db = PureDatabase(directory)
        if former is None:
            table = db.create_table()
            view = db.create_view("counts", table)
            target = db.create_table("copy")
            sink = replace(db.create_sink(view), target=target.id, columns=("k", "g"))
        else:
            table, view, target, sink = former.table, former.view, former.target, former.sink
        log = Log(
            directory / "log",
            db.ledger,
            db.appender,
            cast("Any", None),
            cast("Any", SimpleNamespace(wake=lambda: None)),
            Admission(directory / "log", db.ledger),
        )
        reader = cast("Any", SimpleNamespace(catalog=db.loop.catalog))
        writer = TableWriter(reader, log, cast("Any", None), sink, target.id)
        changelog = Cut(db.history(view.id))
        record = db.ledger.deliveries.all()[sink.id]
        settings = DeliverySettings(part_rows=_MOST)
        delivery = Delivery(db.loop, DeliveryPosition(db.loop, record), changelog, writer, settings)
        return cls(db, table, view, target, sink, delivery, changelog)

    def change(self, changes: Sequence[tuple[int, int, int]]) -> None:
        """Change the table in one statement, and have the view show it."""
        self.db.append(self.table, changes)
        while self.db.loop.pending():
            self.db.loop.advance()

    def read(self, before: Counter[tuple[int, ...]]) -> Counter[tuple[int, ...]]:
        """Have the table read what was appended, and look at it after each epoch."""
        shown = [self.db.rows(self.target.id)]
        while self.db.loop.pending():
            self.db.loop.advance()
            shown.append(self.db.rows(self.target.id))
        now = self.db.rows(self.view.id)
        assert all(rows in (before, now) for rows in shown), "half an epoch was read"
        assert shown[-1] == now
        return now


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of all segments that are written, in order."""
    sizes: list[int] = []
    stage, append = Log.stage, Appender.append

    def staged(self: Log, rows: pa.Table) -> SegmentFile:
        sizes.append(rows.num_rows)
        return stage(self, rows)

    def appended(self: Appender, asked: Append) -> Any:
        sizes.append(asked.rows.num_rows)
        return append(self, asked)

    monkeypatch.setattr(Log, "stage", staged)
    monkeypatch.setattr(Appender, "append", appended)
    return sizes


def test_an_epoch_is_appended_in_small_parts_and_read_as_a_whole(
    tmp_path: Path, written: list[int]
) -> None:
    copied, chosen = Copied.opened(tmp_path), random.Random(3)
    copied.change([(k, k, 1) for k in range(40)])
    shown: Counter[tuple[int, ...]] = Counter()
    for _ in range(6):
        written.clear()
        copied.delivery.advance()
        assert len(written) > 40 / _MOST, "the epoch was not cut"
        assert max(written) <= _MOST
        shown = copied.read(shown)
        copied.change([(k, 100 * chosen.randrange(3) + k % 30, 1) for k in range(60)])
    copied.db.close()


def test_statements_after_an_epoch_in_parts_are_read_after_it(tmp_path: Path) -> None:
    copied = Copied.opened(tmp_path)
    copied.change([(k, k, 1) for k in range(10)])
    copied.delivery.advance()
    for other in range(1000, 1020):
        copied.db.append(copied.target, [(other, 1, 1)])
    ends = []
    while copied.db.loop.pending():
        copied.db.loop.advance()
        ends.append(copied.db.ledger.head.position(copied.target.id))
    assert ends == [10, 14, 18, 22, 26, 30], "of ten rows in parts, and twenty, four fit at once"
    copied.db.close()


@pytest.mark.parametrize("parts", each(2, [0, 1, 2, 5, 13]))
@pytest.mark.parametrize("first", [True, False])
def test_killed_in_the_middle_of_an_epoch_it_is_appended_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, *, first: bool
) -> None:
    copied = Copied.opened(tmp_path)
    shown: Counter[tuple[int, ...]] = Counter()
    copied.change([(k, k, 1) for k in range(40)])
    if not first:
        copied.delivery.advance()
        shown = copied.read(shown)
        copied.change([(k, k + 100, 1) for k in range(40)])
    copied.changelog.left = parts
    end = copied.db.ledger.head.log_end(copied.target.id)
    with monkeypatch.context() as dead:  # what is dead cleans nothing up
        dead.setattr(Log, "_unstage", lambda _self, _staged: None)
        with pytest.raises(Killed):
            copied.delivery.advance()
    copied.db.close()
    left = len(list((tmp_path / "log").iterdir()))
    again = Copied.opened(tmp_path, copied)
    assert left - len(list((tmp_path / "log").iterdir())) == (parts if parts > 1 else 0)
    assert again.db.ledger.head.log_end(again.target.id) == end
    again.delivery.advance()
    appended = again.db.ledger.head.log_end(again.target.id) - end
    assert appended == (40 if first else 80)
    again.read(shown)
    again.db.close()
    # What was appended is not appended again, though the record of the delivery was lost.
    last = Copied.opened(tmp_path, copied)
    record = replace(last.delivery.record, delivered=None, written=None)
    last.delivery.position.record, last.delivery.position.at = record, None
    last.delivery.advance()
    assert last.db.ledger.head.log_end(last.target.id) == end + appended
    last.db.close()


def test_parts_that_a_producer_has_appended_are_not_appended_again(tmp_path: Path) -> None:
    copied = Copied.opened(tmp_path)
    writer = cast("TableWriter", copied.delivery.writer)
    copied.change([(k, k, 1) for k in range(40)])
    epoch = copied.db.ledger.head.epoch
    history = copied.db.history(copied.view.id)
    for _ in range(2):
        writer.write(epoch, history.snapshot(epoch, _MOST))
        assert copied.db.ledger.head.log_end(copied.target.id) == 40
    named = {s.file.name for s in copied.db.ledger.log.segments(copied.target.id, *_all(copied))}
    there = {path.name for path in (tmp_path / "log").iterdir()}
    assert len(named) == 14
    assert len(there - named) <= 1, "what was staged in vain is still there"
    copied.read(Counter())
    copied.db.close()


def test_a_writer_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    copied = Copied.opened(tmp_path)
    copied.change([(k, k, 1) for k in range(40)])
    before = {path.name for path in (tmp_path / "log").iterdir()}
    copied.changelog.left = 7
    with pytest.raises(Killed):
        copied.delivery.advance()
    assert {path.name for path in (tmp_path / "log").iterdir()} == before
    copied.changelog.left = None
    copied.delivery.advance()
    copied.read(Counter())
    copied.db.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_takes_parts_by_its_ids_and_numbers_them(tmp_path: Path, *, fails: bool) -> None:
    copied = Copied.opened(tmp_path)
    db, log = copied.db, cast("TableWriter", copied.delivery.writer).log
    id_ = db.ledger.ids.relation()
    names = ("k", "g", "at")
    schema = Schema(tuple(Column(name, LongType()) for name in names))
    declaration = Declaration(unique=("k",), metadata=(("at", "offset"),))
    stream = Stream(id_, "events", schema, declaration)
    db._commit(NewObject(id_, stream.name, stream.kind, stream.to_json(), ()))

    def parts(*keys: list[int]) -> Iterator[pa.Table]:
        for own in keys:
            values = [own, [1] * len(own), [None] * len(own)]
            arrays = [pa.array(each, pa.int64()) for each in values]
            yield pa.Table.from_arrays(arrays, names=list(names))

    def failing() -> Iterator[pa.Table]:
        yield from parts([1, 2], [2, 3], [7])
        raise Killed

    log.append_in_parts(stream, parts([1]), producer=ProducerPosition("a", 1))
    if fails:
        with pytest.raises(Killed):
            log.append_in_parts(stream, failing(), producer=ProducerPosition("a", 2))
    for _ in range(2):
        given = parts([1, 2, 2], [1, 2], [3, 4], [4, 7])
        log.append_in_parts(stream, given, producer=ProducerPosition("a", 2))
    end = db.ledger.head.log_end(id_)
    batches = read_range(tmp_path / "log", db.ledger.log.segments(id_, _NONE, end), _NONE, end)
    found = [(row["k"], row["at"]) for batch in batches for row in batch.to_pylist()]
    assert found == [(1, 0), (2, 1), (3, 2), (4, 3), (7, 4)]
    db.close()


_NONE = Offset(0)


def _all(copied: Copied) -> tuple[Offset, Offset]:
    return _NONE, copied.db.ledger.head.log_end(copied.target.id)


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """What the ledger executes, by the first two words of each statement."""
    found: list[str] = []

    def connected(connection: Any, _record: object) -> None:
        connection.set_trace_callback(lambda text: found.append(" ".join(text.split()[:2])))

    event.listen(sa.pool.Pool, "connect", connected)
    yield found
    event.remove(sa.pool.Pool, "connect", connected)


def test_a_landing_and_a_delivery_are_one_transaction_each_of_few_statements(
    tmp_path: Path, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    copied = Copied.opened(tmp_path)
    for k in range(2):
        copied.change([(k, k, 1)])
        copied.delivery.advance()
    monkeypatch.setattr("os.fdatasync", syncs.append)
    statements.clear()
    copied.db.append(copied.table, [(3, 3, 1)])
    beginning = ["BEGIN IMMEDIATE", "SELECT fence.token"]
    assert statements == [*beginning, "INSERT INTO", "UPDATE logs", "COMMIT"]
    assert len(syncs) == 1, "of the segment; the ledger has its own"
    copied.db.loop.advance()
    statements.clear()
    syncs.clear()
    assert copied.delivery.advance()
    assert Counter(statements) == Counter(
        [
            *beginning,
            *("SELECT producers.sequence", "UPDATE producers", "UPDATE deliveries"),
            *("INSERT INTO", "UPDATE logs", "COMMIT"),
        ]
    )
    assert len(syncs) == 1
    assert copied.db.ledger.deliveries.all()[copied.sink.id] == copied.delivery.record
    statements.clear()
    assert not copied.delivery.advance()
    assert not statements
    while copied.db.loop.pending():
        copied.db.loop.advance()
    assert copied.db.rows(copied.target.id) == copied.db.rows(copied.view.id)


def test_a_sink_that_was_dropped_meanwhile_appends_nothing(tmp_path: Path) -> None:
    copied = Copied.opened(tmp_path)
    copied.change([(1, 1, 1)])
    end = copied.db.ledger.head.log_end(copied.target.id)
    head = copied.db.ledger.head
    copied.db.ledger.commit(EpochCommit(head.epoch, "drop", dropped=(copied.sink.id,)))
    with pytest.raises(HeadraceError, match="was dropped"):
        copied.delivery.advance()
    assert copied.db.ledger.head.log_end(copied.target.id) == end
