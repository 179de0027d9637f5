"""Events of a stream, as corrections leave them: what is read of them, and what is opened for it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.zset import EVERY_ROW, WEIGHT, Restriction, Test
from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import AppendRecord, EpochCommit, Ledger, SegmentFile
from headrace.storage.log import (
    Corrected,
    Events,
    Extent,
    InLedger,
    Pruning,
    SegmentWriter,
    bounds_of,
    open_segment,
)
from headrace.storage.log.events import OFFSET, SegmentsRead
from headrace.types import Epoch, Offset
from ledger.building import relation as a_relation
from log.test_corrected_share import COLUMNS, STREAM, History, merged_at, small, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.storage.ledger import Segment

INT = pa.int64()
LANDINGS = 300


def between(low: int, high: int, column: str = "n") -> Restriction:
    return Restriction((Test(column, low=pa.scalar(low, INT), high=pa.scalar(high, INT)),))


@dataclass(frozen=True)
class Listed:
    """A ledger of a log with some segments."""

    segments: tuple[Segment, ...]

    @property
    def log(self) -> Listed:
        return self

    def page(
        self, _relation: int, first: int, end: int, most: int, *, newest: bool
    ) -> tuple[Segment, ...]:
        found = [s for s in self.segments if s.range.first < end and s.range.end > first]
        return tuple((found[::-1] if newest else found)[:most])


# -- as corrected ------------------------------------------------------------------------------


def events_of(directory: Path, history: History, first: int, end: int) -> Events:
    within = [s for s in history.segments if s.range.first < end and s.range.end > first]
    known = tuple(s for s in within if s.amends)
    corrected = Corrected(Offset(first), Offset(end), known) if known else None
    extent = Extent(STREAM, Offset(first), Offset(end), corrected)
    bounded = tuple(_bounded(directory, each) for each in within)
    return Events(
        directory,
        extent,
        ("N",),
        COLUMNS,
        InLedger(cast("Ledger", Listed(bounded))),
        frozenset({"N"}),
    )


def _bounded(directory: Path, segment: Segment) -> Segment:
    known = bounds_of(open_segment(directory, segment.file))
    return replace(segment, file=replace(segment.file, bounds=known))


statements = st.lists(
    st.integers(1, 4)
    | st.dictionaries(st.integers(0, 12), st.none() | st.just(1), min_size=1, max_size=3),
    min_size=1,
    max_size=8,
)


@given(statements, small, st.data())
def test_events_are_read_as_their_corrections_left_them_then(statements, unmerged, data) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        history = merged_at(directory, written(directory, statements), unmerged)
        end = data.draw(st.sampled_from(sorted(history.states)))
        begins = [s.range.first for s in history.segments if s.range.first < end and not s.amends]
        first = data.draw(st.sampled_from([0, *begins]))
        low, high = data.draw(st.integers(0, 15)), data.draw(st.integers(0, 25))
        column = data.draw(st.sampled_from(["N", OFFSET]))
        events = events_of(directory, history, first, end)
        now = {o: n for o, n in history.states[end].items() if o >= first}
        tests = between(low, high, column)
        passed = {o: n for o, n in now.items() if low <= (o if column == OFFSET else n) <= high}

        columns = ["N", WEIGHT, OFFSET]
        every = pa.concat_tables([events.columns.empty_table(), *events.parts(columns)])
        assert sorted(every.to_pylist(), key=str) == sorted(
            ({"N": n, WEIGHT: 1, OFFSET: o} for o, n in now.items()), key=str
        )
        assert events.count() == len(now)
        assert events.count(tests) == len(passed)
        found = events.where(tests, 100, ["N"])
        assert found is not None
        assert sorted(found["N"].to_pylist()) == sorted(passed.values())
        for rows in (1, 3, 100):
            newest = [part["N"].to_pylist() for part in events.newest(["N"], tests, rows)]
            assert sorted(n for part in newest for n in part) == sorted(passed.values())


# -- what is opened ----------------------------------------------------------------------------


@dataclass
class Counted:
    """A ledger that counts the segments that it lists."""

    ledger: Ledger
    listed: int = 0

    @property
    def log(self) -> Counted:
        return self

    def page(self, *given: object, **more: bool) -> tuple[Segment, ...]:
        found = self.ledger.log.page(*given, **more)  # type: ignore[arg-type]
        self.listed += len(found)
        return found


@dataclass
class Landed:
    """A stream of landings of one row, n = 0, 1, ..., in a ledger."""

    events: Events
    counted: Counted
    reads: SegmentsRead


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Ledger]]:
    directory = tmp_path_factory.mktemp("events")
    ledger = Ledger.open(directory / "ledger.db")
    ledger.acquire()
    made = a_relation(ledger, "pings")
    ledger.commit(EpochCommit(Epoch(0), "first", created=(made,)))
    rows = [pa.table({"n": [n], "name": [f"row {n}"]}) for n in range(LANDINGS)]
    for file in SegmentWriter(directory).write(rows):
        assert isinstance(file, SegmentFile)
        ledger.log.append_all([AppendRecord(made.relation, file)])
    yield directory, ledger
    ledger.close()


@pytest.fixture
def landed(ledger: tuple[Path, Ledger]) -> Landed:
    directory, kept = ledger
    (relation,) = kept.head.ends
    counted, reads = Counted(kept), SegmentsRead()
    extent = Extent.of(kept, relation, Offset(0), Offset(LANDINGS))
    schema = pa.schema([pa.field("n", INT), pa.field("name", pa.string())])
    listing = InLedger(counted)  # type: ignore[arg-type]
    names, present = tuple(schema.names), frozenset({"n"})
    events = Events(directory, extent, names, schema, listing, present, reads)
    return Landed(events, counted, reads)


def test_the_newest_events_list_and_open_no_more_segments_than_they_come_from(
    landed: Landed,
) -> None:
    first = next(landed.events.newest(["n"], EVERY_ROW, 5))
    assert first["n"].to_pylist() == [295, 296, 297, 298, 299]
    assert (landed.counted.listed, landed.reads.segments) == (5, 5)


def test_a_count_lists_and_opens_nothing(landed: Landed) -> None:
    assert landed.events.count() == LANDINGS
    assert (landed.counted.listed, landed.reads.segments) == (0, 0)


def test_a_count_opens_only_segments_of_which_some_rows_may_pass(landed: Landed) -> None:
    assert landed.events.count(between(10, 250)) == 241
    assert landed.reads.segments == 0  # each has one row, which is within or not
    nullable = replace(landed.events, present=frozenset())
    assert nullable.count(between(10, 250)) == 241
    assert landed.reads.segments == 241  # a row within the bounds may be NULL


def test_a_filter_opens_only_segments_whose_bounds_it_meets(landed: Landed) -> None:
    found = landed.events.where(between(100, 102), 10, ["name"])
    assert found is not None
    assert found["name"].to_pylist() == ["row 100", "row 101", "row 102"]
    assert landed.reads.segments == 3
    assert landed.events.opened(between(100, 102)) == 3


def test_a_filter_of_offsets_lists_only_their_segments(landed: Landed) -> None:
    found = landed.events.where(between(100, 104, OFFSET), 10, [OFFSET])
    assert found is not None
    assert found[OFFSET].to_pylist() == [100, 101, 102, 103, 104]
    assert landed.counted.listed == 5


def test_a_filter_of_offsets_opens_their_segments_and_what_replaces_their_events(
    tmp_path: Path,
) -> None:
    events = events_of(tmp_path, written(tmp_path, [*[1] * 20, {3: 1, 9: 1}, 2]), 0, 26)
    assert events.opened(between(5, 6, OFFSET)) == 2
    assert events.opened(between(8, 9, OFFSET)) == 3
    found = events.where(between(8, 9, OFFSET), 10, ["N", OFFSET])
    assert found is not None
    assert found.to_pylist() == [{"N": 8, OFFSET: 8}, {"N": 21, OFFSET: 9}]


def test_more_rows_than_are_wanted_are_not_all_read(landed: Landed) -> None:
    assert landed.events.where(EVERY_ROW, 10, ["n"]) is None
    assert landed.reads.segments == 0


def test_a_gap_in_the_log_is_an_error_whichever_end_is_read_first(landed: Landed) -> None:
    segments = landed.counted.ledger.log.page(
        landed.events.extent.relation, Offset(0), Offset(LANDINGS), LANDINGS
    )
    gap = InLedger(cast("Ledger", Listed((*segments[:9], *segments[10:]))))
    for newest in (True, False):
        with pytest.raises(HeadraceError, match="no segment for offset 9") as raised:
            gap.page(landed.events.extent, Pruning(), 1000, newest=newest)
        assert raised.value.code is Code.CORRUPT
