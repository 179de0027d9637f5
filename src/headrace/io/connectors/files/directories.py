"""Files below a directory that match a path or pattern, and partition values in their paths.

A pattern has ``*`` and ``?`` within a name, ``[...]`` for one character, and ``**/`` for any number
of directories. Names that begin with ``.`` or ``_``, except ``_name=value``, and names that end in
``.tmp`` or ``.inprogress`` are skipped: by convention, such files are not complete.

Text files that are appended to: whole records are read from the end of the last one.

Only the last bytes before that position are compared with those read earlier: a change further up
in a file goes unnoticed. A last record is not read until its line feed has been written.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from urllib.parse import unquote

import xxhash

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.files.source import FileFormat, csv_decoder
from headrace.io.formats.blocks import (
    BLOCK_BYTES,
    LONGEST_RECORD,
    FilePosition,
    RecordBlock,
    after_mark,
)
from headrace.io.formats.json_lines import JsonDecoder, require_lines
from headrace.io.formats.json_lines import cut as cut_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.io.connectors.files.source import FileOptions
    from headrace.io.formats.blocks import Decoded, Text
    from headrace.io.formats.csv_text import CsvDecoder
    from headrace.types import Schema


_SPECIAL: Final = re.compile(r"[*?\[]")
_UNFINISHED: Final = (".tmp", ".inprogress")
_LOCAL: Final = "file://"
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file: its path, its name relative to the root, its size in bytes and modification time.

    ``inode`` distinguishes it from a later file of the same name. ``outside`` is the target of a
    symbolic link that leads out of the root; such a file is not read.
    """

    path: Path
    name: str
    size: int
    modified_ns: int
    inode: int
    outside: str | None = None

    def partitions(self) -> dict[str, str | None]:
        """Return the values of directories ``name=value`` in the path, by name."""
        pairs = [part.partition("=") for part in Path(self.name).parent.parts if "=" in part]
        return {
            unquote(name): None if value == _NULL_PARTITION else unquote(value)
            for name, _, value in pairs
        }


@dataclass(frozen=True, slots=True)
class FilePattern:
    """A root directory, and a pattern for names relative to it; None matches all files."""

    root: Path
    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, text: str) -> FilePattern:
        """Parse the path of a directory or file, or a pattern.

        Raises:
            HeadraceError: ``unsupported`` for an object store; ``invalid`` for ``..`` in a pattern.
        """
        plain = text.removeprefix(_LOCAL)
        if "://" in plain:
            scheme = plain.partition("://")[0]
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"files of {scheme}:// cannot be read",
                hint="Give a path of this machine, such as one on which the store is mounted.",
            )
        if ".." in Path(plain).parts[_plain_parts(Path(plain).parts) :]:
            raise HeadraceError(
                Code.INVALID,
                f"pattern '{text}' has '..' after a special character",
                hint="Write the path without it.",
            )
        parts = Path(os.path.abspath(plain)).parts  # noqa: PTH100 (keeps symbolic links)
        plain_parts = _plain_parts(parts)
        root = Path(*parts[:plain_parts])
        if plain_parts < len(parts):
            return cls(root.resolve(), _expression(parts[plain_parts:]))
        if root.is_file():
            return cls(root.parent.resolve(), _expression((_escaped(root.name),)))
        return cls(root.resolve(), None)

    def files(self) -> Iterator[FoundFile]:
        """Yield the matching files in no particular order.

        Raises:
            HeadraceError: ``unavailable`` if the root, or a directory below it, cannot be read.
        """
        seen: set[tuple[int, int]] = set()
        try:
            yield from self._below(self.root, "", seen)
        except OSError as error:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f'directory "{self.root}" cannot be read',
                f"{error.strerror}: {error.filename}.",
                "Create or mount it, or allow this process to read it.",
            ) from error

    def _below(
        self, directory: Path, prefix: str, seen: set[tuple[int, int]]
    ) -> Iterator[FoundFile]:
        entered = directory.stat()
        if (entered.st_dev, entered.st_ino) in seen:
            return  # a link to a parent, or to a directory that was read before
        seen.add((entered.st_dev, entered.st_ino))
        inner: list[tuple[Path, str]] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if _is_hidden(entry.name):
                        continue
                    name = prefix + entry.name
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue  # removed meanwhile, or a dangling link
                    if stat.S_ISDIR(status.st_mode):
                        inner.append((directory / entry.name, f"{name}/"))
                        continue
                    if stat.S_ISREG(status.st_mode) and self._names(name):
                        target = self._outside(directory / entry.name, linked=entry.is_symlink())
                        yield FoundFile(
                            directory / entry.name,
                            name,
                            status.st_size,
                            status.st_mtime_ns,
                            status.st_ino,
                            target,
                        )
        except FileNotFoundError:
            if not prefix:
                raise
            return  # removed meanwhile
        for path, name in inner:
            if path.is_symlink() and self._outside(path, linked=True) is not None:
                status = path.stat()
                link, target = name.rstrip("/"), str(path.resolve())
                yield FoundFile(path, link, 0, status.st_mtime_ns, status.st_ino, target)
                continue
            yield from self._below(path, name, seen)

    def _names(self, name: str) -> bool:
        return self.pattern is None or self.pattern.fullmatch(name) is not None

    def _outside(self, path: Path, *, linked: bool) -> str | None:
        """Return the target of a link if it is outside the root, else None."""
        if not linked:
            return None
        target = path.resolve()
        return None if target.is_relative_to(self.root) else str(target)


def _plain_parts(parts: tuple[str, ...]) -> int:
    """Return the number of path parts before the first one with a special character."""
    return next((n for n, part in enumerate(parts) if _SPECIAL.search(part)), len(parts))


def is_pattern(text: str) -> bool:
    """Whether a path has special characters."""
    return _SPECIAL.search(text) is not None


def _is_hidden(name: str) -> bool:
    if name.startswith("_"):
        return "=" not in name
    return name.startswith(".") or name.lower().endswith(_UNFINISHED)


def _escaped(name: str) -> str:
    return _SPECIAL.sub(lambda found: f"[{found[0]}]", name)


def _expression(parts: tuple[str, ...]) -> re.Pattern[str]:
    """Translate a pattern's path parts into a regular expression of whole names."""
    text = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            text += ".*" if last else "(?:[^/]*/)*"
            continue
        text += _of_name(part) + ("" if last else "/")
    return re.compile(text, re.DOTALL)


def _of_name(part: str) -> str:
    text, at = "", 0
    while at < len(part):
        character = part[at]
        end = part.find("]", at + 2) if character == "[" else -1
        if end > 0:
            inside = part[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            text += f"[^/{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
            at = end
        elif character == "*":
            text += "[^/]*"
        else:
            text += "[^/]" if character == "?" else re.escape(character)
        at += 1
    return text


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
