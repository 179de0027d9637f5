"""ORC files: stripe by stripe; see :mod:`headrace.formats.columnar`.

A file says in which calendar its dates are: that of :mod:`headrace.formats.calendars`, in which
ORC's library for Java writes by default, or the proleptic Gregorian one. Arrow
refuses times before 1677.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash
from pyarrow import orc

from headrace.errors import Code, HeadraceError
from headrace.formats.blocks import Decoded, FilePosition, RecordBlock
from headrace.formats.calendars import Calendar
from headrace.formats.columnar import decoded, matched
from headrace.formats.fitting import with_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.types import Schema

_BATCH_ROWS = 131_072
_FOOTER, _CALENDAR, _PROLEPTIC = 2, 11, 2
"""Fields of ORC's file tail and footer, and the value of the latter for the present calendar."""
_FOOTER_BYTES = 1 << 16


def orc_chunks(
    path: Path, schema: Schema, start: FilePosition
) -> Iterator[tuple[RecordBlock, Decoded]]:
    """Yield an ORC file's rows from ``start`` on; a line number is a row number, from 1.

    One stripe is held in memory.

    Raises:
        HeadraceError: INVALID if the file is damaged, or a column has an incompatible type;
            CONFLICT if its end differs from that of the file that was read up to ``start``.
    """
    checksum = _end_checksum(path)
    start.require_same(path, checksum)
    try:
        with path.open("rb") as stored:
            yield from _batches(path, orc.ORCFile(stored), schema, start, checksum)
    except (pa.ArrowException, OSError) as error:
        raise HeadraceError(
            Code.INVALID, f'file "{path}" is not a whole ORC file', f"{error}"
        ) from error


def _batches(
    path: Path, file: orc.ORCFile, schema: Schema, start: FilePosition, checksum: str
) -> Iterator[tuple[RecordBlock, Decoded]]:
    columns = matched(path, file.schema, schema)
    wanted = [name for name in columns if name is not None]
    calendar = Calendar("UTC" if _is_in_former_calendar(file) else None)

    def moved(leaf: pa.Array) -> pa.Array:
        return calendar.moved(leaf) if pa.types.is_date32(leaf.type) else leaf

    total_rows, total_bytes = file.nrows, path.stat().st_size
    row = 0
    for number in range(file.nstripes):
        stripe = pa.table(file.read_stripe(number, columns=wanted))
        for first in range(0, stripe.num_rows, _BATCH_ROWS):
            batch = stripe.slice(first, _BATCH_ROWS)
            skipped = min(batch.num_rows, max(0, start.position - row))
            end = row + batch.num_rows
            if skipped < batch.num_rows:
                line = row + skipped + 1
                table = pa.table(
                    [with_leaves(c.combine_chunks(), moved) for c in batch.slice(skipped).columns],
                    names=batch.column_names,
                )
                rows = decoded(str(path), table, schema, columns, line)
                done = total_bytes * end // max(1, total_rows)
                yield RecordBlock(b"", line, FilePosition(end, end, checksum), done), rows
            row = end


def _is_in_former_calendar(file: orc.ORCFile) -> bool:
    footer = dict(_fields(dict(_fields(file.reader.serialized_file_tail()))[_FOOTER]))
    known = footer.get(_CALENDAR)
    return file.writer == "ORC_JAVA" if known is None else bool(known != _PROLEPTIC)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of a message of Protobuf with numbers and bytes alone."""
    rest = iter(message)
    for key in rest:
        number = _varint(key, rest)
        field, is_bytes = number >> 3, number & 7 == 2  # noqa: PLR2004
        value = _varint(next(rest), rest)
        yield field, bytes(islice(rest, value)) if is_bytes else value


def _varint(first: int, rest: Iterator[int]) -> int:
    found, shift = first & 0x7F, 7
    while first & 0x80:
        first = next(rest)
        found |= (first & 0x7F) << shift
        shift += 7
    return found


def _end_checksum(path: Path) -> str:
    """Return the checksum of a file's last 64 KiB, which contain its footer."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _FOOTER_BYTES))
        return xxhash.xxh3_64(file.read()).hexdigest()
