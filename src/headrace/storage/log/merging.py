"""Merges consecutive segments of a log into large ones, with the same changes in the same order.

Corrections of a stream's events are merged with the events around them: each change still says by
itself which event it amends, and in which correction.

A log begins as a *tail* of small segments, one for each landing. Once there are many, they become a
large one. Large ones are merged again when enough of similar size follow each other, so that each
row is written again only as often as its segment grows by the factor :data:`FANOUT`, and a long log
is a few segments of each size. Full ones stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.storage.log.large import (
    AMENDED,
    APPENDED,
    OF_CORRECTIONS,
    WEIGHT,
    LargeWriter,
    keeps,
    plain_events,
)
from headrace.storage.log.segments import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from headrace.storage.ledger import Segment, SegmentFile


FANOUT: Final = 8
TAIL_SEGMENTS: Final = 256
"""So many landings are merged; fewer if they have :data:`TAIL_SIZE` rows."""
TAIL_SIZE: Final = 4_096
FULL_SIZE: Final = 1 << 20
"""About the rows of the largest segments, ..."""
_BYTES_OF_ROW: Final = 64
"""... if they have so many bytes each; wider ones count more. A full one has about 64 MB."""
_COMPRESSED: Final = 4
"""What is not compressed is taken to have so many times the bytes that it will have."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment as the choice of merges sees it.

    ``size`` is its rows, or more if they are wide. It is merged with none of another ``span``, nor
    with what is before it if it is ``apart``.
    """

    size: int
    is_large: bool
    span: Any = None
    apart: bool = False

    @classmethod
    def of(cls, file: SegmentFile, span: Any, *, apart: bool) -> Piece:
        """Return a segment as a piece."""
        is_large = bool(file.footer)
        size = file.bytes // (_BYTES_OF_ROW if is_large else _BYTES_OF_ROW * _COMPRESSED)
        return cls(max(file.rows, size), is_large, span, apart)

    @property
    def is_full(self) -> bool:
        """Whether it stays as it is."""
        return self.is_large and self.size >= FULL_SIZE // 2

    def is_of(self, level: int) -> bool:
        """Whether it is merged with others of up to a level."""
        return self.level <= level and not self.is_full

    @property
    def level(self) -> int:
        """Its size as a power of :data:`FANOUT`, from 0 on; -1 in the tail."""
        if not self.is_large:
            return -1
        level, most = 0, TAIL_SIZE
        while self.size >= most:
            level, most = level + 1, most * FANOUT
        return level


def due(pieces: Sequence[Piece], tail: int = TAIL_SEGMENTS) -> list[range]:
    """Return the groups of consecutive segments to merge now, as ranges of their positions.

    A tail is merged if it has so many segments, or many rows. Large segments are merged, with what
    is between them, if the result is a factor of :data:`FANOUT` larger than any of them can be.
    """
    found = []
    for run in _runs(pieces):
        found += next(
            filter(None, (_due(pieces, run, level, tail) for level in _levels(pieces, run))), []
        )
    return found


def _runs(pieces: Sequence[Piece]) -> Iterator[range]:
    """Yield the ranges of segments that may be merged with each other."""
    first = 0
    for at in range(1, len(pieces) + 1):
        ends = at == len(pieces)
        if ends or pieces[at].apart or pieces[at].span != pieces[at - 1].span:
            yield range(first, at)
            first = at


def _levels(pieces: Sequence[Piece], run: range) -> list[int]:
    """Return the levels of a run, the largest first: what is merged there, is not merged twice."""
    return sorted({pieces[at].level for at in run if not pieces[at].is_full}, reverse=True)


def _due(pieces: Sequence[Piece], run: range, level: int, tail: int) -> list[range]:
    """Return the groups in a run of segments of up to a level, where they are due."""
    found: list[range] = []
    for fits, places in groupby(run, lambda at: pieces[at].is_of(level)):
        stretch = list(places)
        size = sum(pieces[at].size for at in stretch)
        many = len(stretch) >= tail and level < 0
        if fits and (many or size >= TAIL_SIZE * FANOUT ** max(level, 0)):
            found += _divided(pieces, stretch)
    return found


def _divided(pieces: Sequence[Piece], stretch: Sequence[int]) -> Iterator[range]:
    """Yield a stretch in groups that make full segments; the last may be smaller."""
    first, size = stretch[0], 0
    for at in stretch:
        if size and size + pieces[at].size > FULL_SIZE:
            yield range(first, at)
            first, size = at, 0
        size += pieces[at].size
    yield range(first, stretch[-1] + 1)


@dataclass(frozen=True, slots=True)
class Merged:
    """Consecutive segments with one schema, and the large one with their rows, which is on disk.

    Corrections of a stream's events have that of the events.

    No file is written where nothing is gained by it: of a single segment, or of types that Parquet
    does not keep.
    """

    segments: tuple[Segment, ...]
    file: SegmentFile | None


def merged(
    directory: Path, segments: Sequence[Segment], pause: Callable[[], None] = lambda: None
) -> Iterator[Merged]:
    """Yield consecutive segments merged, in memory for a row group; ``pause`` is called often.

    Raises:
        HeadraceError: CORRUPT if a segment is damaged; UNAVAILABLE if the disk fails.
    """
    corrections = any(each.amends for each in segments)
    opened = ((_schema(directory, each), each) for each in segments)
    for plain, group in groupby(opened, itemgetter(0)):
        those = map(itemgetter(1), group)
        start = [each for each in (next(those), next(those, None)) if each is not None]
        schema = _with_corrections(plain) if corrections else plain
        alone = len(start) == 1 and (start[0].file.footer or start[0].range.rows < TAIL_SIZE)
        if alone or not keeps(schema):
            yield Merged((*start, *those), None)
            continue
        with LargeWriter(directory, schema) as writer:
            written = []
            for each in chain(start, those):
                pause()
                written.append(each)
                _write(writer, directory, each)
            file = writer.finish()
        yield Merged(tuple(written), file)


def _schema(directory: Path, segment: Segment) -> pa.Schema:
    """Return the schema of the changes of a segment; of corrections, that of the events."""
    first = next(blocks(directory, [segment], segment.range.first, segment.range.end))
    schema = first.schema.remove_metadata()
    return plain_events(schema) if AMENDED in schema.names else schema


def _with_corrections(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *(pa.field(name, pa.int64()) for name in OF_CORRECTIONS)])


def _write(writer: LargeWriter, directory: Path, segment: Segment) -> None:
    for block in blocks(directory, [segment], segment.range.first, segment.range.end):
        read = block.read([*block.schema.names, APPENDED])
        nothing = pa.nulls(read.num_rows, pa.int64())
        columns = {name: nothing for name in writer.schema.names if name in OF_CORRECTIONS}
        if AMENDED in columns:
            columns[WEIGHT] = pa.repeat(pa.scalar(1, pa.int64()), read.num_rows)
        columns |= dict(zip(read.schema.names, read.columns, strict=True))
        rows = [columns[name] for name in writer.schema.names]
        writer.write(pa.RecordBatch.from_arrays(rows, schema=writer.schema), read[APPENDED])
