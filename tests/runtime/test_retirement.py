"""Retirement without Spark: what is cut, what is held, what a reader still reads, and crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, TimestampType

from headrace.execution.runtime.step import whole_log
from headrace.planning.catalog import Declaration, Stream
from headrace.storage.ledger import EpochCommit, NewObject
from headrace.storage.log import Append, EmbeddedLog, bounds_of, merged_bounds
from headrace.types import Column, Schema
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.execution.runtime.published import Published

DAY = 86_400_000_000
TODAY = 100
SCHEMA = Schema((Column("k", IntegerType()), Column("at", TimestampType())))


class CrashError(Exception):
    """The end of the process."""


class Days:
    """A database with a stream whose events each have a day, on the day 100; kept for 30 days."""

    def __init__(self, directory: Path, fault: Callable[[str], None] = lambda _: None) -> None:
        self.directory = directory
        self.db = PureDatabase(directory, fault, lambda: TODAY * 86_400.0)
        found = self.db.loop.catalog.find("s")
        self.stream = found if isinstance(found, Stream) else self._created()

    def _created(self) -> Stream:
        declaration = Declaration(watermark=("at", "at"), retention=30 * DAY)
        stream = Stream(self.db.ledger.ids.relation(), "s", SCHEMA, declaration)
        made = NewObject(stream.id, "s", stream.kind, stream.to_json())
        ledger = self.db.ledger
        ledger.commit(EpochCommit(ledger.head.epoch, "create-s", created=(made,)))
        published = self.db.loop.published
        published.publish(published.current.catalog.with_(stream))
        return stream

    def append(self, *days: int | None) -> None:
        """Append events, each of a day, as one segment in a file of its own."""
        self.pack(*days)
        self.db.segments.close_pack({path.name for path in (self.directory / "log").iterdir()})

    def pack(self, *days: int | None) -> None:
        """Append events, each of a day, as one segment in the present file of the stream."""
        at = [None if day is None else day * DAY for day in days]
        rows = pa.table({"k": pa.array(range(len(days)), pa.int32()), "at": _times(at)})
        self.db.appender.append(Append(self.stream.id, rows, apart=True))

    def kept(self, state: Published | None = None) -> list[int | None]:
        """Return the days of the events that a state has: by default, the newest."""
        state = state or self.db.loop.published.current
        ledger = self.db.ledger
        share = whole_log(ledger, state, self.stream.id, ledger.head.log_end(self.stream.id))
        read = EmbeddedLog().read(
            self.directory / "log", share, pa.schema([SCHEMA.arrow.field("at")]), offsets=False
        )
        times = [at for batch in read for at in batch["at"].cast(pa.int64()).to_pylist()]
        return [None if at is None else at // DAY for at in times]

    def files(self) -> int:
        """Return how many files the log has."""
        return sum(1 for _ in (self.directory / "log").iterdir())


def _times(micros: list[int | None]) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))


def test_the_first_segments_whose_events_are_all_older_are_retired(tmp_path: Path) -> None:
    days = Days(tmp_path)
    days.append(1, 2)
    days.append(60, None)
    days.append(69, 71)
    days.append(3)
    days.db.compaction.run()
    assert days.kept() == [69, 71, 3], "one event is of the last 30 days: what follows stays"
    known = days.db.ledger.log.retired(days.stream.id)
    assert known is not None
    assert known.start == 4
    assert known.bounds["k"] == [0, 1]
    assert known.bounds["at"] == [DAY, 60 * DAY]
    assert days.files() == 2
    days.db.close()


def test_a_log_that_is_cut_shares_no_file_with_others(tmp_path: Path) -> None:
    days = Days(tmp_path)
    table = days.db.create_table()
    for day in (1, 2, 3):
        days.pack(day)
        days.db.append(table, [(day, day, 1)])
    assert days.files() == 2
    days.db.compaction.run()
    days.db.compaction.run()  # a state that the first pass found may have been held
    assert days.files() == 1
    days.pack(90)
    days.db.append(table, [(4, 4, 1)])
    days.db.loop.advance()
    assert days.kept() == [90]
    assert days.db.contents(table.id).whole().num_rows == 4
    days.db.close()


def test_a_reader_keeps_what_its_state_has_until_it_is_done(tmp_path: Path) -> None:
    days = Days(tmp_path)
    days.append(1)
    days.append(90)
    state: Published | None = days.db.loop.published.current
    days.db.compaction.run()
    assert days.kept(state) == [1, 90]
    assert days.kept() == [90]
    assert days.files() == 2
    state = None
    days.db.compaction.run()
    assert days.files() == 1
    days.db.close()


@pytest.mark.parametrize("stage", ["retire", "retired", "before commit", "after commit", "swept"])
def test_a_crash_while_events_are_retired_leaves_them_or_none(tmp_path: Path, stage: str) -> None:
    armed = False

    def fault(reached: str) -> None:
        if armed and reached == stage:
            raise CrashError(reached)

    days = Days(tmp_path, fault)
    days.append(1)
    days.append(2, 90)
    armed = True
    with pytest.raises(CrashError):
        days.db.compaction.run()
    armed = False
    days.db.close()
    again = Days(tmp_path)
    assert again.kept() == ([2, 90] if stage in ("after commit", "swept") else [1, 2, 90])
    again.db.compaction.run()
    assert again.kept() == [2, 90]
    assert again.files() == 1
    again.db.close()


def test_bounds_of_two_parts_are_those_of_both() -> None:
    parts = [
        pa.table({"a": pa.array([3, None]), "b": pa.array(["x", "y"]), "c": pa.array([1, 2])}),
        pa.table({"a": pa.array([None, 9]), "b": pa.array(["k" * 99, "y"]), "d": pa.array([1, 2])}),
    ]
    found = merged_bounds(*map(bounds_of, parts))
    assert found == {"a": [3, 9]}, "long text, and a column that one does not have, have no bounds"
    nothing = bounds_of(pa.table({"a": pa.array([None], pa.int64())}))
    assert merged_bounds(nothing, nothing) == {"a": [None, None]}
    assert merged_bounds(nothing, found) == {"a": [3, 9]}
