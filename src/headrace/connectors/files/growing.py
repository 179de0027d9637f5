"""Text files that are appended to: whole records are read from the end of the last one.

Only the last bytes before that position are compared with those read earlier: a change further up
in a file goes unnoticed. A last record is not read until its line feed has been written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Final

import xxhash

from headrace.connectors.files.source import FileFormat, csv_decoder
from headrace.errors import Code, HeadraceError
from headrace.formats.blocks import (
    BLOCK_BYTES,
    LONGEST_RECORD,
    FilePosition,
    RecordBlock,
    after_mark,
)
from headrace.formats.json_lines import JsonDecoder, require_lines
from headrace.formats.json_lines import cut as cut_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.connectors.files.source import FileOptions
    from headrace.formats.blocks import Decoded, Text
    from headrace.formats.csv_text import CsvDecoder
    from headrace.types import Schema

_COMPARED_BYTES: Final = 4096
_BEGINNING_BYTES: Final = 1 << 20
GROWING: Final = frozenset({FileFormat.CSV, FileFormat.JSON})
"""The formats of files that can be appended to."""


def grown(
    path: Path, schema: Schema, options: FileOptions, start: FilePosition
) -> Iterator[tuple[Decoded, FilePosition]]:
    """Yield the whole records of a file after ``start`` in blocks, each with the progress after it.

    Raises:
        HeadraceError: ``invalid`` for a record longer than 64 MiB, or a file that does not fit the
            schema; ``conflict`` if the bytes before ``start`` have changed since they were read.
    """
    with path.open("rb") as file:
        for block, decoder in _records(file, path, schema, options, start):
            yield decoder.decode(block), block.progress


def end_of(path: Path, schema: Schema, options: FileOptions) -> FilePosition:
    """Return the end of the last whole record in a file; see :func:`grown` for errors."""
    end = FilePosition()
    with path.open("rb") as file:
        for block, _ in _records(file, path, schema, options, end):
            end = block.progress
    return end


def _records(
    file: BinaryIO, path: Path, schema: Schema, options: FileOptions, start: FilePosition
) -> Iterator[tuple[RecordBlock, CsvDecoder | JsonDecoder]]:
    """Yield the whole records of a file after ``start`` in blocks, with their decoder."""
    size = file.seek(0, os.SEEK_END)
    if size < start.position or start.checksum not in ("", _checksum(_before(file, start))):
        raise HeadraceError(
            Code.CONFLICT,
            f'file "{path}" was replaced or cut off after it was read',
            f"It was read up to line {start.line}.",
        )
    file.seek(0)
    beginning = file.read(_BEGINNING_BYTES)
    if start.position == 0:
        if b"\n" not in beginning and len(beginning) < _BEGINNING_BYTES:
            return
        start = after_mark(beginning)
    decoder: CsvDecoder | JsonDecoder
    cut: Callable[[Text, bool], int]
    if options.format is FileFormat.CSV:
        decoder, reader, first = csv_decoder(path, schema, options)
        cut = reader.cut
        start = max(start, first, key=lambda at: at.position)
    else:
        require_lines(f'file "{path}"', beginning)
        decoder, cut = JsonDecoder(str(path), schema), cut_lines
    before, wanted = _before(file, start), BLOCK_BYTES
    while True:
        file.seek(start.position)
        data = file.read(wanted)
        end = cut(data, False)  # noqa: FBT003 (the signature of a cut)
        if end == 0:
            if len(data) < wanted:
                return
            if wanted > LONGEST_RECORD:
                raise _too_long(path, start.line + 1)
            wanted *= 2
            continue
        whole = data[:end]
        before = (before + whole[-_COMPARED_BYTES:])[-_COMPARED_BYTES:]
        line = start.line + whole.count(b"\n")
        after = FilePosition(start.position + end, line, _checksum(before))
        yield RecordBlock(whole, start.line + 1, after, after.position), decoder
        start, wanted = after, BLOCK_BYTES


def _before(file: BinaryIO, at: FilePosition) -> bytes:
    """Return the last bytes before a position, to compare them."""
    file.seek(max(0, at.position - _COMPARED_BYTES))
    return file.read(min(_COMPARED_BYTES, at.position))


def _checksum(data: bytes) -> str:
    return xxhash.xxh3_64(data).hexdigest()


def _too_long(path: Path, line: int) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f'file "{path}" holds a record longer than 64 MiB from line {line}',
        hint="A quote may be unclosed there, or the file may have another format.",
    )
