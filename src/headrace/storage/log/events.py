"""The events of a stream up to an offset of its log, read in this process as its corrections say.

Segments are listed a page at a time, from the end that is asked for, and those whose bounds exclude
what is asked are not opened: so a read costs what it returns and what its filter may meet, never
the number of landings. What is counted without a filter follows from offsets.

Reads the embedded log, in Spark's workers and in this process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset import EVERY_ROW, Restriction
from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.storage.log.amended import superseded
from headrace.storage.log.large import AMENDED, WEIGHT
from headrace.storage.log.segments import blocks
from headrace.storage.log.share import Corrected, LogShare, Pruning, read_bounds
from headrace.types import Offset
from headrace.types.earlier import filled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from headrace.algebra.zset import Bounds
    from headrace.algebra.zset.order import Bools
    from headrace.storage.ledger import Ledger, Segment
    from headrace.storage.log.amended import Superseded
    from headrace.storage.log.segments import LogBlock
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class EmbeddedLog:
    """Reads changes of a relation's log; see ``LogReader``."""

    def read(
        self,
        directory: Path,
        share: LogShare,
        columns: pa.Schema,
        *,
        offsets: bool,
        restriction: Restriction = EVERY_ROW,
        newest_first: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns, then ``__weight``, then, with ``offsets``, ``__offset``.

        A stream's log stores no weights, because its rows are insertions, except where there are
        corrections: their rows have weights and the offset of the event that they amend.
        ``columns`` have the names under which the log stores them, and their present types: a
        column that was added after a change was appended is NULL in it, or has the value that its
        field says, and one whose type was narrower is cast. Rows that do not meet the restriction
        are left out. If the share is read as corrected, superseded changes are left out too.

        Of large segments, only the row groups with such rows are read, and only the columns: first
        those of the restriction, and the others if any row meets it. With ``newest_first``, the
        last block of rows comes first; within each, rows are in order.
        """
        amended = None if share.corrected is None else superseded(directory, share.corrected)
        read = _Read(columns, restriction, share.since, amended, offsets=offsets)
        parts = list(share.contiguous())
        for part in reversed(parts) if newest_first else parts:
            for block in blocks(
                directory, part.segments, part.first, part.end, newest_first=newest_first
            ):
                rows = read.of(block)
                if rows is not None:
                    yield rows


@dataclass(frozen=True, slots=True)
class _Read:
    """What is read of each block of a log."""

    columns: pa.Schema
    restriction: Restriction
    since: Offset
    amended: Superseded | None
    offsets: bool

    def of(self, block: LogBlock) -> pa.RecordBatch | None:
        """Return the rows of a block; None if it is not read, since none meets the restriction."""
        if not self.restriction.may_hold(self._bounds(block)):
            return None
        stored = block.schema.names
        tested = {test.column for test in self.restriction.tests}
        early = [n for n in stored if n in tested or n == AMENDED or (n == WEIGHT and self.amended)]
        late = [n for n in stored if n not in early and (n == WEIGHT or n in self.columns.names)]
        known = block.read(early) if tested or not late else block.read([*early, *late])
        kept = self._kept(block, known)
        if kept is not None and not kept.any():
            return None
        if tested and late:
            rest = block.read(late)
            arrays = {**_arrays(known), **_arrays(rest)}
        else:
            arrays = _arrays(known)
        if kept is not None:
            chosen = pa.array(kept)
            arrays = {name: values.filter(chosen) for name, values in arrays.items()}
        return self._named(block, arrays, kept)

    def _bounds(self, block: LogBlock) -> dict[str, Bounds]:
        names = {test.column for test in self.restriction.tests}
        return read_bounds({n: b for n, b in block.bounds.items() if n in names}, block.schema)

    def _kept(self, block: LogBlock, known: pa.RecordBatch) -> Bools | None:
        """Return a mask of the rows of a block to keep; None if all are."""
        tested = {test.column for test in self.restriction.tests}
        kept = None
        if tested:
            kept = self.restriction.rows(_completed(known, self.columns, tested))
        kept = _both(kept, _amends_kept(known, self.since))
        if self.amended is not None:
            kept = _both(kept, self.amended.kept(known, block.first))
        return kept

    def _named(
        self, block: LogBlock, arrays: dict[str, pa.Array], kept: Bools | None
    ) -> pa.RecordBatch:
        """Return the kept rows of a block as they are asked for, from their stored columns."""
        count = block.rows if kept is None else int(kept.sum())
        found = [
            widened(arrays[each.name], each.type) if each.name in arrays else filled(each, count)
            for each in self.columns
        ]
        found.append(arrays[WEIGHT] if WEIGHT in arrays else pa.array(np.ones(count, np.int64)))
        if self.offsets:
            places = np.arange(block.first, block.end, dtype=np.int64)
            own = pa.array(places if kept is None else places[kept])
            found.append(pc.coalesce(arrays[AMENDED], own) if AMENDED in arrays else own)
        labels = [*self.columns.names, WEIGHT, *(["__offset"] if self.offsets else [])]
        return pa.RecordBatch.from_arrays(found, names=labels)


def _arrays(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _completed(rows: pa.RecordBatch, columns: pa.Schema, among: set[str]) -> pa.RecordBatch:
    """Return rows with those ``among`` the columns that they lack since these were added later."""
    known = {*rows.schema.names}
    for each in columns:
        if each.name in among and each.name not in known:
            rows = rows.append_column(each.name, filled(each, rows.num_rows))
    return rows


def widened(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the values of a column as its present type, which may be wider than when they were."""
    same = values.type == type_ or pa.types.is_nested(type_)
    return values if same else values.cast(type_)


def _amends_kept(rows: pa.RecordBatch, since: Offset) -> Bools | None:
    """Return a mask of the changes whose events are retained; None if all are."""
    if not since or AMENDED not in rows.schema.names:
        return None
    retained = pc.fill_null(pc.greater_equal(rows[AMENDED], since), fill_value=True)
    found: Bools = retained.to_numpy(zero_copy_only=False)
    return found


def _both(one: Bools | None, other: Bools | None) -> Bools | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


OFFSET: Final = "__offset"
_BLOCK_ROWS: Final = 1 << 16
"""The rows of neighbouring segments that are read at a time."""
_MOST_LISTED: Final = 4096
"""The most segments that are listed at a time."""
_SCANNED: Final = 8_000_000
"""The most rows whose tested columns are compared for rows that are wanted at once."""


@dataclass(slots=True)
class SegmentsRead:
    """What reads of events have opened in this process so far."""

    segments: int = 0
    rows: int = 0
    bytes: int = 0

    def add(self, segments: Sequence[Segment]) -> None:
        """Count segments that are opened."""
        self.segments += len(segments)
        self.rows += sum(each.file.rows for each in segments)
        self.bytes += sum(each.file.bytes for each in segments)


SEGMENTS_READ: Final = SegmentsRead()


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets ``[first, end)`` of a stream's log, and the corrections among them."""

    relation: RelationId
    first: Offset
    end: Offset
    corrected: Corrected | None = None

    @classmethod
    def of(cls, ledger: Ledger, relation: RelationId, first: Offset, end: Offset) -> Extent:
        """Return an extent with the corrections that the ledger has."""
        found = ledger.log.corrections_between(relation, first, end)
        return cls(relation, first, end, Corrected(first, end, found) if found else None)


@dataclass(frozen=True, slots=True)
class Page:
    """Segments that may hold rows, in the order asked for; the offsets ``left`` are not listed."""

    segments: tuple[Segment, ...]
    left: tuple[Offset, Offset]


class SegmentListing(Protocol):
    """Lists the segments of a log, which may be very many."""

    def page(self, extent: Extent, pruning: Pruning, most: int, *, newest: bool) -> Page:
        """Return about ``most`` segments that may hold rows, from one end of an extent.

        Raises:
            HeadraceError: CORRUPT if a segment is missing.
        """
        ...


@dataclass(frozen=True, slots=True)
class InLedger:
    """Lists segments from the ledger."""

    ledger: Ledger

    def page(self, extent: Extent, pruning: Pruning, most: int, *, newest: bool) -> Page:
        """Return a page; what the pruning excludes costs a row of the ledger each."""
        found: list[Segment] = []
        left, asked = (extent.first, extent.end), most
        while left[0] < left[1] and len(found) < most:
            listed = self.ledger.log.page(extent.relation, *left, asked, newest=newest)
            before = extent.first, extent.end
            if left != before and any(_straddles(each, left, newest=newest) for each in listed):
                break  # merged meanwhile with some that were listed: a page of its own cuts it
            left = _left(listed, left, newest=newest)
            found += (each for each in listed if pruning.may_hold(each.file.bounds))
            asked = min(4 * asked, _MOST_LISTED)
        return Page(tuple(found), left)


def _straddles(segment: Segment, left: tuple[Offset, Offset], *, newest: bool) -> bool:
    """Whether a segment also has offsets that were listed before those that are left."""
    return segment.range.end > left[1] if newest else segment.range.first < left[0]


def _left(
    listed: Sequence[Segment], range_: tuple[Offset, Offset], *, newest: bool
) -> tuple[Offset, Offset]:
    """Return the offsets of a range that are left without its listed segments.

    Raises:
        HeadraceError: CORRUPT if they leave a gap.
    """
    low, high = range_
    for each in listed:
        if newest and each.range.end >= high:
            high = each.range.first
        elif not newest and each.range.first <= low:
            low = each.range.end
        else:
            break
    if (low, high) == range_:
        raise HeadraceError(
            Code.CORRUPT,
            f"log has no segment for offset {high - 1 if newest else low}",
            hint=f"Restore the data directory from a backup. {BACKUPS}",
        )
    return low, high


@dataclass(frozen=True, slots=True)
class Events:
    """The events of an extent of a stream's log, each once, as its corrections leave them.

    ``names`` are the columns to show, and ``stored`` those of the log that have them, in the same
    order; ``__weight``, which is 1, and ``__offset`` follow. ``present`` are the names of columns
    that are never NULL.
    """

    directory: Path
    """The directory of the log."""
    extent: Extent
    names: tuple[str, ...]
    stored: pa.Schema
    listing: SegmentListing
    present: frozenset[str] = frozenset()
    reads: SegmentsRead = field(default_factory=lambda: SEGMENTS_READ, compare=False, repr=False)

    @property
    def columns(self) -> pa.Schema:
        """The columns that can be read."""
        pairs = zip(self.stored, self.names, strict=True)
        shown = [field.with_name(name).remove_metadata() for field, name in pairs]
        places = [pa.field(name, pa.int64()) for name in (WEIGHT, OFFSET)]
        return pa.schema([*shown, *places])

    @property
    def rows_upper_bound(self) -> int:
        """The number of changes in the log: not less than the number of events."""
        return self.extent.end - self.extent.first

    # -- rows ----------------------------------------------------------------------------------

    def parts(
        self, columns: Sequence[str], restriction: Restriction = EVERY_ROW
    ) -> Iterator[pa.Table]:
        """Yield some columns of the events that meet a restriction, in parts, in their order."""
        for block in self._blocks(restriction, _BLOCK_ROWS):
            yield from self._parts(block, columns, restriction)

    def newest(
        self, columns: Sequence[str], restriction: Restriction, rows: int
    ) -> Iterator[pa.Table]:
        """Yield the events that meet a restriction in parts, those that arrived last first.

        Each part is in the order of the log. The first is made of about ``rows`` rows, and each
        further one of four times as many.
        """
        empty = self.columns.empty_table().select(list(columns))
        for block in self._blocks(restriction, max(1, rows), newest=True):
            yield pa.concat_tables([empty, *self._parts(block[::-1], columns, restriction)])

    def where(self, restriction: Restriction, most: int, columns: Sequence[str]) -> pa.Table | None:
        """Return some columns of the events that meet a restriction, in their order.

        None if there are more than ``most``, or if millions of rows have to be compared.
        """
        if not restriction.tests and self.rows_upper_bound > most:
            return None
        found, count, compared = [self.columns.empty_table().select(list(columns))], 0, 0
        for block in self._blocks(restriction, _BLOCK_ROWS):
            compared += sum(each.rows for each in block)
            if compared > _SCANNED:
                return None
            for part in self._parts(block, columns, restriction):
                count += part.num_rows
                if count > most:
                    return None
                found.append(part)
        return pa.concat_tables(found)

    def count(self, restriction: Restriction = EVERY_ROW) -> int:
        """Return how many events meet a restriction.

        Without one, only segments with corrections are opened. With one, those are not opened for
        rows whose bounds say that none of their rows meets it, or all.
        """
        if not restriction.tests:
            return self._count(self.extent.first, self.extent.end)
        columns = {test.column for test in restriction.tests}
        sure = self._pruning(restriction) if columns <= self.present else None
        total = 0
        for block in self._blocks(restriction, _BLOCK_ROWS):
            rest = []
            for each in block:
                if sure is not None and sure.holds_all(each.segment.file.bounds):
                    total += self._count(each.first, each.end)
                else:
                    rest.append(each)
            total += sum(batch.num_rows for batch in self._batches(rest, (), restriction))
        return total

    def opened(self, restriction: Restriction) -> int:
        """Return how many segments a read of all such events opens; it lists them."""
        return sum(len(block) for block in self._blocks(restriction, _BLOCK_ROWS))

    # -- the log -------------------------------------------------------------------------------

    def _count(self, first: Offset, end: Offset) -> int:
        """Return how many events the changes ``[first, end)`` leave."""
        corrected = self.extent.corrected
        if corrected is None:
            return end - first
        return superseded(self.directory, corrected).count(first, end)

    def _within(self, restriction: Restriction) -> tuple[list[_Piece], Extent, list[_Piece]]:
        """Return where events may be that meet tests of their offset.

        It is a range of the log and, before and after it, what corrections put in place of events.
        """
        extent = self.extent
        first, end = int(extent.first), int(extent.end)
        for test in restriction.tests:
            if test.column == OFFSET:
                low, high = test.range
                first = first if low is None else max(first, low.as_py())
                end = end if high is None else min(end, high.as_py() + 1)
        end = max(first, end)
        places = np.empty(0, np.int64)
        if extent.corrected is not None and (first, end) != (extent.first, extent.end):
            amended = superseded(self.directory, extent.corrected)
            places = amended.replacing(Offset(first), Offset(end))
        return (
            list(self._around(places[places < first])),
            replace(extent, first=Offset(first), end=Offset(end)),
            list(self._around(places[places >= end])),
        )

    def _around(self, places: NDArray[np.int64]) -> Iterator[_Piece]:
        """Yield pieces of segments with corrections that have all of some offsets, which ascend."""
        corrected = self.extent.corrected
        for segment in () if corrected is None else corrected.segments:
            low, high = np.searchsorted(places, [segment.range.first, segment.range.end])
            within = places[low:high]
            apart = np.flatnonzero(np.diff(within) >= _BLOCK_ROWS) + 1
            for some in np.split(within, apart) if len(within) else ():
                yield _Piece(segment, Offset(int(some[0])), Offset(int(some[-1]) + 1))

    def _pruning(self, restriction: Restriction) -> Pruning:
        return Pruning.of(self._in_log(restriction))

    def _in_log(self, restriction: Restriction) -> Restriction:
        """Return the tests of columns that the log stores, under their names there."""
        stored = dict(zip(self.names, self.stored.names, strict=True))
        tests = (t.of(stored[t.column]) for t in restriction.tests if t.column in stored)
        return Restriction(tuple(tests))

    def _blocks(
        self, restriction: Restriction, rows: int, *, newest: bool = False
    ) -> Iterator[list[_Piece]]:
        """Yield what may hold such rows, about ``rows`` rows at a time, then more.

        With ``newest``, the last offsets come first, and large segments are taken in pieces.
        """
        pruning, (before, extent, after) = self._pruning(restriction), self._within(restriction)
        if newest:
            before, after = after[::-1], before[::-1]
        if before:
            yield before
        block, held = list[_Piece](), 0
        while extent.first < extent.end:
            page = self.listing.page(extent, pruning, min(rows, _MOST_LISTED), newest=newest)
            for each in page.segments:
                first = max(each.range.first, extent.first)
                end = min(each.range.end, extent.end)
                while first < end:
                    at = Offset(max(first, end - rows + held)) if newest else first
                    block.append(_Piece(each, at, end))
                    held, end = held + end - at, at
                    if held >= rows:
                        yield block
                        block, held, rows = [], 0, min(4 * rows, _BLOCK_ROWS)
            extent = replace(extent, first=page.left[0], end=page.left[1])
        if block:
            yield block
        if after:
            yield after

    def _parts(
        self, pieces: Sequence[_Piece], names: Sequence[str], restriction: Restriction
    ) -> Iterator[pa.Table]:
        """Yield some columns of the events in pieces, which ascend, that meet a restriction."""
        small, rows = list[pa.RecordBatch](), 0
        for batch in self._batches(pieces, names, restriction):
            small.append(batch)
            rows += batch.num_rows
            if rows >= _BLOCK_ROWS:
                yield pa.Table.from_batches(small).select(list(names))
                small, rows = [], 0
        if small:
            yield pa.Table.from_batches(small).combine_chunks().select(list(names))

    def _batches(
        self, pieces: Sequence[_Piece], names: Sequence[str], restriction: Restriction
    ) -> Iterator[pa.RecordBatch]:
        """Yield the events in pieces, which ascend, that meet a restriction: at least the columns.

        Columns that the restriction tests follow, and the weight.
        """
        self.reads.add([each.segment for each in pieces])
        wanted = {*names, *(test.column for test in restriction.tests)}
        places = [i for i, name in enumerate(self.names) if name in wanted]
        stored = pa.schema([self.stored.field(i) for i in places])
        labels = [*(self.names[i] for i in places), WEIGHT]
        placed = Restriction(tuple(t for t in restriction.tests if t.column not in self.names))
        with_offsets = OFFSET in wanted
        for share in self._shares(pieces):
            for batch in EmbeddedLog().read(
                self.directory,
                share,
                stored,
                offsets=with_offsets,
                restriction=self._in_log(restriction),
            ):
                found = batch.rename_columns([*labels, OFFSET] if with_offsets else labels)
                kept = placed.rows(found)
                if kept is not None:
                    found = found.filter(pa.array(kept))
                if found.num_rows:
                    yield found

    def _shares(self, pieces: Sequence[_Piece]) -> Iterator[LogShare]:
        """Yield the pieces as shares, each of neighbours."""
        extent, run = self.extent, list[_Piece]()
        for number, each in enumerate(pieces):
            run.append(each)
            if number + 1 == len(pieces) or pieces[number + 1].first != each.end:
                segments = tuple(piece.segment for piece in run)
                first, end = run[0].first, each.end
                yield LogShare(segments, first, end, extent.first, extent.corrected)
                run = []


@dataclass(frozen=True, slots=True)
class _Piece:
    """The changes ``[first, end)`` of a segment."""

    segment: Segment
    first: Offset
    end: Offset

    @property
    def rows(self) -> int:
        """The number of changes."""
        return self.end - self.first
